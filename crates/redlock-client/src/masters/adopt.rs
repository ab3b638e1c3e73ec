//! Adopts the fingerprint that the masters store (names, longest lease and T_acquire), if the caller has only
//! urls.
//!
//! The stored fingerprints must agree, and N must be the number of urls; otherwise adoption fails.

use std::sync::Arc;

use thiserror::Error;

use redlock_core::{Fingerprint, FingerprintError, eligibility::RETIRED};

use super::{ConfigError, MasterStatus, Masters, MastersConfig, Meter, Notices, Tasks};

/// The number of masters that must carry the same fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// A majority, for a process that takes part.
    Majority,
    /// All masters that carry a fingerprint, for a process that inspects or repairs them when a majority may be gone.
    AllFound,
}

/// A configuration under the fingerprint that its masters carry.
#[derive(Clone, Debug)]
pub struct Adopted {
    /// The longest lease and T_acquire are the stored ones, and a process that takes part re-seals. The names remain those that were given with the
    /// urls: the url of a stored name is unknown, and a wrong name would mislead.
    pub config: MastersConfig,
    pub fingerprint: Fingerprint,
    /// Whether a master carries the fingerprint. Otherwise it is that of the given configuration.
    pub stored: bool,
}

/// The reason why the masters' fingerprint was not adopted.
#[derive(Debug, Error)]
pub enum AdoptError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("no majority of the masters answers: {found}")]
    NoMajority {
        found: String,
        /// The number of masters that refused the user, the password or a permission.
        denied: usize,
    },
    #[error("the masters do not carry one fingerprint: {found}; are these urls the masters of one quorum?")]
    Disagree { found: String },
    /// A majority lost its memory at once, or the masters that have a fingerprint do not answer.
    #[error(
        "fewer than a majority of the masters carry a fingerprint: {found}; the others lost their memory and must be \
         sealed again, or do not belong to this quorum"
    )]
    Forgotten { found: String },
    #[error(
        "{urls} urls given, but the stored quorum has {stored} masters ({names}): give the urls of all of them"
    )]
    Count {
        urls: usize,
        stored: usize,
        names: String,
    },
    #[error(transparent)]
    Unreadable(#[from] FingerprintError),
}

impl Adopted {
    /// Wraps a configuration that names its masters, for which no fingerprint has to be adopted.
    #[must_use]
    pub fn as_configured(config: MastersConfig) -> Self {
        Self {
            fingerprint: config.fingerprint(),
            config,
            stored: false,
        }
    }

    /// Opens the masters, as [`Masters::open`] does.
    ///
    /// # Errors
    /// Returns an error for a configuration that cannot work.
    pub fn open(&self) -> Result<(Masters, Notices, Tasks), ConfigError> {
        self.open_with(None)
    }

    /// Opens the masters; `meter` counts every exchange.
    ///
    /// # Errors
    /// Returns an error for a configuration that cannot work.
    pub fn open_with(&self, meter: Option<Arc<dyn Meter>>) -> Result<(Masters, Notices, Tasks), ConfigError> {
        Masters::open_as(&self.config, self.fingerprint.clone(), meter)
    }
}

/// Reads the fingerprint that the masters carry. If no master carries one, the result has the fingerprint of
/// `config`.
///
/// # Errors
/// Returns an error if too few masters answer, if they disagree, or if their number is not that of the urls.
pub async fn adopt(config: MastersConfig, agreement: Agreement) -> Result<Adopted, AdoptError> {
    let read_only = MastersConfig {
        reseal: false,
        ..config.clone()
    };
    let (masters, mut notices, tasks) = Masters::open(&read_only, None)?;
    let adopted = adopt_from(config, agreement, &masters, &mut notices).await;
    tasks.close().await;
    adopted
}

/// Adopts the fingerprint and opens the masters, for a process that takes part and waits for them. Connects
/// only once to masters that carry the fingerprint of `config`, which is the one that `init` writes by
/// default.
///
/// # Errors
/// See [`adopt`].
pub async fn adopt_open(
    config: MastersConfig,
    agreement: Agreement,
) -> Result<(Adopted, (Masters, Notices, Tasks)), AdoptError> {
    let reseals = config.reseal;
    let (masters, mut notices, tasks) = Masters::open(&config, None)?;
    let adopted = adopt_from(config, agreement, &masters, &mut notices).await;
    match adopted {
        Ok(adopted) if adopted.fingerprint == *masters.fingerprint() && adopted.config.reseal == reseals => {
            Ok((adopted, (masters, notices, tasks)))
        }
        adopted => {
            tasks.close().await;
            let adopted = adopted?;
            let opened = adopted.open()?;
            Ok((adopted, opened))
        }
    }
}

async fn adopt_from(
    config: MastersConfig,
    agreement: Agreement,
    masters: &Masters,
    notices: &mut Notices,
) -> Result<Adopted, AdoptError> {
    let majority = masters.size().majority();
    let enough = |all: &[MasterStatus]| agreed(all, majority).is_some();
    let all = masters
        .first_poll_notified(notices, Masters::FIRST_POLL_TIMEOUT, enough)
        .await;
    let Some(text) = choose(&all, majority, agreement)? else {
        return Ok(Adopted::as_configured(config));
    };
    let fingerprint: Fingerprint = text.parse()?;
    let (urls, stored) = (config.masters.len(), fingerprint.names().len());
    if urls != stored {
        let names = fingerprint.names().join(", ");
        return Err(AdoptError::Count { urls, stored, names });
    }
    Ok(Adopted {
        config: MastersConfig {
            longest_lease: fingerprint.longest_lease(),
            acquire_limit: fingerprint.acquire_limit(),
            reseal: config.reseal || agreement == Agreement::Majority,
            ..config
        },
        fingerprint,
        stored: true,
    })
}

fn choose(all: &[MasterStatus], majority: usize, agreement: Agreement) -> Result<Option<String>, AdoptError> {
    if let Some(text) = agreed(all, majority) {
        return Ok(Some(text));
    }
    let found = || all.iter().map(account).collect::<Vec<_>>().join("; ");
    let mut texts: Vec<&str> = all.iter().filter_map(carried).map(|(_, text)| text).collect();
    texts.sort_unstable();
    texts.dedup();
    let answering = all.iter().filter(|status| status.answers()).count();
    match (agreement, &texts[..]) {
        (_, [_, _, ..]) => Err(AdoptError::Disagree { found: found() }),
        (Agreement::AllFound, texts) => Ok(texts.first().map(|text| (*text).to_owned())),
        (Agreement::Majority, []) if answering >= majority => Ok(None),
        (Agreement::Majority, [_]) if answering >= majority => Err(AdoptError::Forgotten { found: found() }),
        (Agreement::Majority, _) => Err(AdoptError::NoMajority {
            found: found(),
            denied: all.iter().filter(|status| status.auth()).count(),
        }),
    }
}

/// Returns the run_id and the fingerprint of a master that carries one.
fn carried(status: &MasterStatus) -> Option<(&str, &str)> {
    let facts = status.facts.as_ref().filter(|_| status.answers())?;
    let none = facts.fingerprint.is_empty() || facts.fingerprint.starts_with(RETIRED);
    (!none).then_some((&facts.run_id, &facts.fingerprint))
}

/// Returns the text that at least `majority` servers carry (P-29); a server under two urls counts once.
fn agreed(all: &[MasterStatus], majority: usize) -> Option<String> {
    let mut carried: Vec<(&str, &str)> = all.iter().filter_map(carried).collect();
    carried.sort_unstable();
    carried.dedup();
    let of = |text: &str| carried.iter().filter(|(_, other)| *other == text).count();
    let found = carried.iter().find(|(_, text)| of(text) >= majority)?;
    Some(found.1.to_owned())
}

fn account(status: &MasterStatus) -> String {
    let what = match (&status.trouble, carried(status)) {
        (Some(trouble), _) => trouble.to_string(),
        (None, Some((_, text))) => text.chars().take(300).collect(),
        (None, None) if status.ineligible.is_some() => {
            status.ineligible.iter().map(ToString::to_string).collect()
        }
        (None, None) if status.answers() => "no fingerprint (never sealed)".into(),
        (None, None) => "no answer".into(),
    };
    format!("{} ({}): {what}", status.name, status.url)
}
