//! Identifies a quorum by its fingerprint and a random id.
//!
//! Two quorums may have the same fingerprint, since masters have the same names in every environment. The id is drawn
//! when a quorum is sealed for the first time and is stored with each seal, so that a server of another quorum in the
//! list of masters has no vote. Pure; the only state is the id, which is set once for the life of the process.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use crate::{MasterFacts, eligibility, seal::Seen};

/// Separates the fingerprint from the id where both are stored.
const SEPARATOR: &str = " quorum=";
const DIGITS: usize = 32;

/// The random id of a quorum: 32 hex digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct QuorumId(String);

impl QuorumId {
    /// Builds the id from 128 random bits.
    #[must_use]
    pub fn from_bits(bits: u128) -> Self {
        Self(format!("{bits:032x}"))
    }

    /// Returns `None` if the text is not 32 hex digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        (text.len() == DIGITS && text.chars().all(hex)).then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for QuorumId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Joins the fingerprint and the id as the masters store them.
#[must_use]
pub fn stamp(fingerprint: &str, id: &QuorumId) -> String {
    format!("{fingerprint}{SEPARATOR}{id}")
}

/// Splits a stored text into the fingerprint and the id.
#[must_use]
pub fn split(stored: &str) -> (&str, Option<QuorumId>) {
    match stored.rsplit_once(SEPARATOR) {
        Some((fingerprint, id)) => (fingerprint, QuorumId::parse(id)),
        None => (stored, None),
    }
}

/// The identity of the quorum as this process knows it.
#[derive(Clone, Debug)]
pub struct Identity {
    fingerprint: String,
    pinned: Option<Pinned>,
    /// The id for a quorum that has none yet. It stays for the life of the process: a seal whose reply was lost is
    /// never followed by another id.
    drawn: Option<QuorumId>,
    seen: Seen,
}

#[derive(Clone, Debug)]
struct Pinned {
    id: QuorumId,
    stamp: Arc<str>,
}

impl Identity {
    /// Creates an identity. `id` was stored before, outside the masters.
    #[must_use]
    pub fn new(fingerprint: String, id: Option<QuorumId>) -> Self {
        let mut identity = Self {
            fingerprint,
            pinned: None,
            drawn: None,
            seen: Seen::default(),
        };
        if let Some(id) = id {
            identity.pin(id);
        }
        identity
    }

    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    #[must_use]
    pub fn id(&self) -> Option<&QuorumId> {
        self.pinned.as_ref().map(|pinned| &pinned.id)
    }

    /// Returns the text that the scripts compare. Without the id it matches the stamp of no sealed master (P-18).
    #[must_use]
    pub fn stamp(&self) -> Arc<str> {
        let pinned = self.pinned.as_ref();
        pinned.map_or_else(|| self.fingerprint.as_str().into(), |pinned| pinned.stamp.clone())
    }

    /// Pins an id (P-24). Called while none is pinned: the process does not follow its masters into another quorum.
    fn pin(&mut self, id: QuorumId) {
        let stamp = stamp(&self.fingerprint, &id).into();
        self.pinned = Some(Pinned { id, stamp });
    }

    /// Reports whether the server is sealed for this quorum.
    pub(crate) fn is_sealed_here(&self, facts: &MasterFacts) -> bool {
        facts.sealed() && self.fits(facts)
    }

    /// Pins the id that at least `majority` sealed servers agree on (P-24). Returns true if this call pinned it.
    pub fn learn<'a>(&mut self, shown: impl Iterator<Item = &'a MasterFacts>, majority: usize) -> bool {
        if self.id().is_some() {
            return false;
        }
        let mut servers: BTreeMap<&QuorumId, BTreeSet<&str>> = BTreeMap::new();
        for facts in shown.filter(|facts| self.is_sealed_here(facts)) {
            if let Some(id) = &facts.quorum {
                servers.entry(id).or_default().insert(&facts.run_id);
            }
        }
        let agreed = servers.into_iter().find(|(_, of)| of.len() >= majority);
        let Some(id) = agreed.map(|(id, _)| id.clone()) else {
            return false;
        };
        self.pin(id);
        true
    }

    /// Returns the id under which masters without a seal are to be sealed: the pinned one, or the one that most masters
    /// show, in a seal or in data that survived a restart. A tie is decided by the number of seals. `None` if no master
    /// shows one (P-25).
    #[must_use]
    pub fn choose<'a>(&self, shown: impl Iterator<Item = &'a MasterFacts>) -> Option<QuorumId> {
        if let Some(id) = self.id() {
            return Some(id.clone());
        }
        let mut counts: BTreeMap<&QuorumId, (usize, usize)> = BTreeMap::new();
        for facts in shown.filter(|facts| facts.fingerprint == self.fingerprint && self.fits(facts)) {
            if let Some(id) = &facts.quorum {
                let (all, sealed) = counts.entry(id).or_default();
                *all += 1;
                *sealed += usize::from(facts.sealed());
            }
        }
        let chosen = counts.into_iter().max_by_key(|(_, count)| *count);
        chosen.map(|(id, _)| id.clone())
    }

    /// Records the fingerprint that a master shows.
    pub fn note(&mut self, master: usize, facts: &MasterFacts) {
        self.seen.note(master, facts);
    }

    /// Returns the fingerprints that the masters have shown.
    #[must_use]
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Reports whether a server is sealed for another fingerprint, or for another quorum than the known one.
    #[must_use]
    pub fn is_foreign(&self, facts: &MasterFacts) -> bool {
        let other_id = self.id().is_some_and(|own| facts.quorum.as_ref() != Some(own));
        facts.sealed() && (facts.fingerprint != self.fingerprint || other_id)
    }

    /// Returns the id that was drawn for a quorum without one.
    #[must_use]
    pub fn drawn(&self) -> Option<&QuorumId> {
        self.drawn.as_ref()
    }

    /// Sets the drawn id. The first one is kept.
    pub fn set_drawn(&mut self, id: QuorumId) {
        self.drawn.get_or_insert(id);
    }

    fn fits(&self, facts: &MasterFacts) -> bool {
        eligibility::check(facts, &self.fingerprint, None).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: char) -> QuorumId {
        QuorumId::parse(&digit.to_string().repeat(DIGITS)).unwrap()
    }

    fn server(run_id: &str, sealed: bool, quorum: Option<char>) -> MasterFacts {
        MasterFacts {
            run_id: run_id.into(),
            seal: if sealed { run_id.into() } else { String::new() },
            fingerprint: "f".into(),
            quorum: quorum.map(id),
            ..eligibility::fit()
        }
    }

    #[test]
    fn stored_text_reads_back() {
        let stored = stamp("v=1 n=3", &id('a'));
        assert_eq!(split(&stored), ("v=1 n=3", Some(id('a'))));
        assert_eq!(split("v=1 n=3"), ("v=1 n=3", None));
        assert_eq!(split("f quorum=x"), ("f", None));
        assert_eq!(
            QuorumId::parse(&QuorumId::from_bits(7).to_string()).map(|_| ()),
            Some(())
        );
    }

    #[test]
    fn id_of_a_majority_is_pinned_once() {
        let mut identity = Identity::new("f".into(), None);
        let of = |a, b| [server("r0", true, Some(a)), server("r1", true, Some(b))];
        assert!(!identity.learn(of('a', 'b').iter(), 2));
        // One server under two names is one server.
        let twice = [server("r0", true, Some('a')), server("r0", true, Some('a'))];
        assert!(!identity.learn(twice.iter(), 2));
        let unsealed = [server("r0", true, Some('a')), server("r1", false, Some('a'))];
        assert!(!identity.learn(unsealed.iter(), 2));
        assert!(identity.learn(of('a', 'a').iter(), 2));
        assert_eq!(identity.id(), Some(&id('a')));
        assert!(!identity.learn(of('b', 'b').iter(), 2));
        assert_eq!(identity.id(), Some(&id('a')));
        assert_eq!(*identity.stamp(), *stamp("f", &id('a')));
    }

    #[test]
    fn remembered_id_wins_over_a_majority_of_strangers() {
        let mut identity = Identity::new("f".into(), Some(id('a')));
        let strangers = [server("r0", true, Some('b')), server("r1", true, Some('b'))];
        assert!(!identity.learn(strangers.iter(), 2));
        assert_eq!(identity.choose(strangers.iter()), Some(id('a')));
    }

    #[test]
    fn seals_are_given_under_the_id_that_most_masters_show() {
        let identity = Identity::new("f".into(), None);
        let chosen = |servers: &[MasterFacts]| identity.choose(servers.iter());
        assert_eq!(chosen(&[server("r0", false, None)]), None);
        let left = [server("r0", false, Some('b')), server("r1", false, None)];
        assert_eq!(chosen(&left), Some(id('b')));
        let tie = [server("r0", true, Some('a')), server("r1", false, Some('b'))];
        assert_eq!(chosen(&tie), Some(id('a')));
        let other = MasterFacts {
            fingerprint: "g".into(),
            ..server("r0", false, Some('b'))
        };
        assert_eq!(chosen(&[other]), None);
    }
}
