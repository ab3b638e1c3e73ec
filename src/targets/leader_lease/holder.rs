//! The holder identity that the operator writes into a Lease. Pure.

use std::{fmt, str::FromStr};

use k8s_openapi::api::coordination::v1::Lease;

use super::record::{OPERATOR, Record};
use crate::lease::ClusterId;

/// `NAMESPACE.NAME`: 63 and 63 characters, and a dot.
const RELEASE_LIMIT: usize = 127;

/// The name of one installation of the operator in a cluster, such as `NAMESPACE.NAME` of a Helm release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseName(String);

impl FromStr for ReleaseName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        if text.is_empty() || text.len() > RELEASE_LIMIT || !text.chars().all(plain) {
            return Err(format!(
                "{text:?} is not the name of a release: write NAMESPACE.NAME in lower case, such as redlock.redlock-operator, \
                 of at most {RELEASE_LIMIT} characters"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for ReleaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How the API server protects the Leases that the operator holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaseFence {
    /// Whether the admission policy of the chart is installed.
    pub(crate) enforced: bool,
    /// The release that the policy recognises in a holder identity; `None` outside of a chart.
    pub(crate) release: Option<ReleaseName>,
}

/// The holder identity of the operator of this release in this cluster. All its replicas write the same.
#[derive(Clone, Debug)]
pub(super) struct OwnHolder {
    /// `redlock.dev/CLUSTER/RELEASE`. An earlier version takes every text with this beginning for one of an operator.
    text: String,
    /// What a version wrote that did not name the release.
    earlier: String,
}

impl OwnHolder {
    pub(super) fn new(cluster: &ClusterId, release: Option<&ReleaseName>) -> Self {
        let earlier = format!("{OPERATOR}{}", cluster.name());
        let text = release.map_or_else(|| earlier.clone(), |release| format!("{earlier}/{release}"));
        Self { text, earlier }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Reads a record. The holder of one that an earlier version wrote is this release: no other release follows the
    /// namespace. So a rollout to this version takes no Lease again, and no wait begins anew.
    pub(super) fn read(&self, lease: &Lease) -> Record {
        let mut record = Record::of(lease);
        if record.holder == self.earlier {
            record.holder.clone_from(&self.text);
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(own: &OwnHolder, holder: &str) -> String {
        let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": holder}});
        own.read(&serde_json::from_value(lease).unwrap()).holder
    }

    #[test]
    fn holder_names_the_release_and_earlier_versions_read_it_as_one_of_an_operator() {
        let cluster = ClusterId::new("eu", "u").unwrap();
        let release: ReleaseName = "redlock.redlock-operator".parse().unwrap();
        let own = OwnHolder::new(&cluster, Some(&release));
        assert_eq!(own.text(), "redlock.dev/eu/redlock.redlock-operator");
        assert!(own.text().starts_with(OPERATOR), "the test of an earlier version");
        assert_eq!(read(&own, own.text()), own.text());
        assert_eq!(read(&own, "redlock.dev/eu"), own.text(), "of an earlier version");
        for other in [
            "",
            "web-0_u",
            "redlock.dev/us",
            "redlock.dev/eu/other.redlock-operator",
        ] {
            assert_eq!(read(&own, other), other);
        }
        assert_eq!(OwnHolder::new(&cluster, None).text(), "redlock.dev/eu");
    }

    #[test]
    fn only_plain_text_is_the_name_of_a_release() {
        for text in ["", "a/b", "A.b", "a b", "a|b", &"a".repeat(128)] {
            assert!(text.parse::<ReleaseName>().is_err(), "{text:?}");
        }
        let longest = format!("{}.{}", "a".repeat(63), "b".repeat(63));
        assert_eq!(longest.parse::<ReleaseName>().unwrap().to_string(), longest);
    }
}
