//! Defines the text under `P:lease:L`: the holder, and the random value that proves a lease is mine.

use std::{fmt, str::FromStr};

use thiserror::Error;

use super::{ClusterId, HolderIdentity};

/// The version of the protocol, the first part of every lease value.
pub const PROTOCOL_VERSION: u32 = 1;

/// 128 fresh random bits, which distinguish one lease of a holder from every other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Nonce(#[cfg_attr(feature = "trace", serde(with = "crate::trace::hex"))] pub u128);

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A lease value up to the nonce, `1|<cluster>|<cluster UID>|<identity>|<nonce>|`.
///
/// A lease is *mine* if its value begins with this stem. The grant number behind it is not compared, because
/// the reply that carried it may have been lost; only `confirm` compares the whole text (P-13).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct LeaseStem {
    text: String,
    nonce: Nonce,
}

impl LeaseStem {
    #[must_use]
    pub fn new(cluster: &ClusterId, identity: &HolderIdentity, nonce: Nonce) -> Self {
        let text = format!(
            "{PROTOCOL_VERSION}|{}|{}|{identity}|{nonce}|",
            cluster.name(),
            cluster.uid()
        );
        Self { text, nonce }
    }

    /// Returns the nonce, which no other lease has.
    #[must_use]
    pub const fn nonce(&self) -> Nonce {
        self.nonce
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// A whole lease value, as read from a master.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct LeaseValue {
    pub cluster: ClusterId,
    pub identity: HolderIdentity,
    pub nonce: Nonce,
    /// The grant number of the master that it was read from (after a heal: the token).
    pub grant: u64,
}

/// A key under `P:lease:` that this version cannot read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ValueError {
    #[error("lease value has {0} parts, expected 6: version|cluster|cluster UID|identity|nonce|grant")]
    Parts(usize),
    #[error("lease value is of protocol version {0}, this program reads version {PROTOCOL_VERSION}")]
    Version(String),
    #[error("lease value has an invalid {part}: {text:?}")]
    Part { part: &'static str, text: String },
}

impl FromStr for LeaseValue {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let parts: Vec<&str> = text.split('|').collect();
        let [version, cluster, uid, identity, nonce, grant] = parts[..] else {
            return Err(ValueError::Parts(parts.len()));
        };
        if version != PROTOCOL_VERSION.to_string() {
            return Err(ValueError::Version(version.to_owned()));
        }
        let bad = |part, text: &str| ValueError::Part {
            part,
            text: text.to_owned(),
        };
        Ok(Self {
            cluster: ClusterId::new(cluster, uid).map_err(|_| bad("cluster", cluster))?,
            identity: HolderIdentity::parse(identity).map_err(|_| bad("identity", identity))?,
            // Accepts only the text that would be written: `from_str_radix` and `parse` also accept a sign.
            nonce: u128::from_str_radix(nonce, 16)
                .map(Nonce)
                .ok()
                .filter(|n| n.to_string() == nonce)
                .ok_or_else(|| bad("nonce", nonce))?,
            grant: grant
                .parse()
                .ok()
                .filter(|n: &u64| n.to_string() == grant)
                .ok_or_else(|| bad("grant number", grant))?,
        })
    }
}

impl fmt::Display for LeaseValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stem = LeaseStem::new(&self.cluster, &self.identity, self.nonce);
        write!(f, "{}{}", stem.as_str(), self.grant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value() -> LeaseValue {
        LeaseValue {
            cluster: ClusterId::new("eu-1", "uid-1").unwrap(),
            identity: HolderIdentity::parse("redlock-7c9f").unwrap(),
            nonce: Nonce(0xab),
            grant: 42,
        }
    }

    #[test]
    fn text_is_the_documented_one_and_reads_back() {
        let text = "1|eu-1|uid-1|redlock-7c9f|000000000000000000000000000000ab|42";
        assert_eq!(value().to_string(), text);
        assert_eq!(text.parse(), Ok(value()));
        assert!(text.starts_with(LeaseStem::new(&value().cluster, &value().identity, Nonce(0xab)).as_str()));
    }

    #[test]
    fn foreign_texts_are_named() {
        for (text, error) in [
            ("", ValueError::Parts(1)),
            ("1|a|b|c|d", ValueError::Parts(5)),
            (
                "2|a|b|c|000000000000000000000000000000ab|1",
                ValueError::Version("2".into()),
            ),
            (
                "1|a|b|c|zz|1",
                ValueError::Part {
                    part: "nonce",
                    text: "zz".into(),
                },
            ),
            (
                "1|a|b|c|000000000000000000000000000000ab|-1",
                ValueError::Part {
                    part: "grant number",
                    text: "-1".into(),
                },
            ),
        ] {
            assert_eq!(text.parse::<LeaseValue>(), Err(error), "{text}");
        }
    }
}
