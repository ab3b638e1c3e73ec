//! Checks the invariants at every instant.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redlock_core::{ClusterId, Marks};

use crate::{
    candidate::Candidate,
    master::{Job, Master, mine},
    rate::Instant,
    world::ACQUIRE_LIMIT,
};

/// A broken invariant, by its name in docs/safety.md if it has one there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) invariant: &'static str,
    pub(crate) at: Instant,
    pub(crate) how: String,
}

#[derive(Debug, Default)]
pub(crate) struct Checks {
    greatest_token: u64,
    /// The tokens of all wins.
    won: BTreeSet<u64>,
    /// The greatest token of each candidate.
    tokens: BTreeMap<usize, u64>,
    /// The time before which every instant was checked, with the masters as they were then.
    checked: Instant,
    pub(crate) broken: Option<Broken>,
    pub(crate) wins: u64,
    /// The greatest token whose mark a majority has. `clean` is the greatest that any master has as clean.
    held: u64,
    clean: u64,
    /// The longest delay that a majority has with that token.
    delay: Duration,
    slots: BTreeMap<u64, Job>,
    /// The cluster for which the lock is reserved, and the end of the reservation.
    reserved: Option<(String, Instant)>,
    /// The last win of a candidate of each cluster.
    entered: BTreeMap<String, Instant>,
    scope: Scope,
}

/// The invariants that hold in a world, by its clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scope {
    #[default]
    All,
    /// Clocks of masters are set, and what depends on their rates does not hold. A candidate acquires the lock all the
    /// same once the steps end.
    WithoutLeases,
    /// Rates are beyond the drift: tokens, slots and marks do not depend on them.
    OnlyTokens,
}

impl Checks {
    pub(crate) fn new(scope: Scope) -> Self {
        Self {
            scope,
            ..Self::default()
        }
    }

    /// Limits the checks to tokens: clocks are set beyond the assumptions of S1 and S3.
    pub(crate) fn check_only_tokens(&mut self) {
        self.scope = Scope::OnlyTokens;
    }

    pub(crate) fn fail(&mut self, invariant: &'static str, at: Instant, how: String) {
        let checked = match self.scope {
            Scope::All => true,
            Scope::WithoutLeases => matches!(invariant, "S2" | "marks" | "L1"),
            Scope::OnlyTokens => matches!(invariant, "S2" | "marks"),
        };
        if !checked {
            return;
        }
        self.broken.get_or_insert(Broken { invariant, at, how });
    }

    /// Checks S1 and S3 at every instant from the last event up to `at`: between events belief only ends and keys only
    /// expire, so the worst instant of a belief is its last one.
    /// `twin`: the planted second server of the first master's name, for the candidates that reach it.
    pub(crate) fn until<'a>(
        &mut self,
        at: Instant,
        candidates: &(impl Iterator<Item = &'a Candidate> + Clone),
        (masters, twin): (&[Master], Option<&Master>),
    ) {
        let believing = |instant| {
            let all = candidates.clone();
            all.filter(move |candidate| candidate.authority(instant).is_some())
        };
        for candidate in candidates.clone() {
            let Some(ends) = candidate.authority_ends() else {
                continue;
            };
            let last = at.min(ends.saturating_sub(1));
            if last < self.checked || candidate.authority(last).is_none() {
                continue;
            }
            if believing(last).count() > 1 {
                self.fail("S1", last, "two candidates believe".to_owned());
            }
            let twin = twin.filter(|_| candidate.reaches_twin());
            let first = twin.or(masters.first()).into_iter();
            let reached = first.chain(masters.iter().skip(1));
            let others = reached.filter(|m| available(m, last, candidate)).count();
            if others > masters.len() / 2 {
                let how = format!("{others} masters could grant the lease of {}", candidate.cluster);
                self.fail("S3", last, how);
            }
        }
        self.checked = at;
    }

    /// Checks S2: each win has a greater token than every one before, and no candidate goes back. A renewal
    /// under a smaller token than that of another candidate shows a second holder: it breaks S1, which
    /// depends on clocks.
    pub(crate) fn active(
        &mut self,
        token: u64,
        won: Option<(Marks, Duration)>,
        by: (usize, &ClusterId),
        at: Instant,
    ) {
        let (candidate, cluster) = by;
        self.unique(token, won.is_some(), at);
        let own = self.tokens.get(&candidate).copied().unwrap_or_default();
        let greatest = self.greatest_token;
        let how = || format!("token {token} after {greatest}, of its own {own}");
        match won {
            Some(_) if token <= self.greatest_token => self.fail("S2", at, how()),
            None if token < own => self.fail("S2", at, how()),
            None if token < self.greatest_token => self.fail("S1", at, how()),
            _ => {}
        }
        self.tokens.insert(candidate, own.max(token));
        self.greatest_token = self.greatest_token.max(token);
        let Some((marks, took)) = won else { return };
        self.wins += 1;
        self.entered.insert(cluster.uid().to_owned(), at);
        // The wait of a seal depends on this limit.
        if took > ACQUIRE_LIMIT {
            self.fail("limit", at, format!("an attempt took {took:?}"));
        }
        if self.held > self.clean && !marks.ended_uncleanly() {
            let how = format!("{marks:?} after {} was held and not ended cleanly", self.held);
            self.fail("marks", at, how);
        }
        if self.held > self.clean && self.held == marks.held && marks.declared_delay() < Some(self.delay) {
            let how = format!("{marks:?} after {:?} was declared", self.delay);
            self.fail("delay", at, how);
        }
        if let Some((kept, until)) = self.reserved.take()
            && at < until
            && kept != cluster.uid()
        {
            self.fail("reserved", at, format!("{cluster} won what was kept for {kept}"));
        }
    }

    /// Checks a win or a renewal that was requested before the candidate's clock stood still, and that is published
    /// after it: another candidate may have held the lock in between, but the token is unique and raises the greatest
    /// one. A cluster that enters ends the reservation for it.
    pub(crate) fn active_late(
        &mut self,
        token: u64,
        won: bool,
        (candidate, cluster): (usize, &ClusterId),
        at: Instant,
    ) {
        self.unique(token, won, at);
        if won {
            self.reserved.take_if(|(kept, _)| kept == cluster.uid());
        }
        let own = self.tokens.entry(candidate).or_default();
        *own = token.max(*own);
        self.greatest_token = self.greatest_token.max(token);
    }

    fn unique(&mut self, token: u64, won: bool, at: Instant) {
        if won && !self.won.insert(token) {
            self.fail("S2", at, format!("token {token} was won twice"));
        }
    }

    pub(crate) fn held(&mut self, token: u64, delay: Duration) {
        if token > self.held {
            (self.held, self.delay) = (token, delay);
        } else if token == self.held {
            self.delay = self.delay.max(delay);
        }
    }

    pub(crate) fn clean(&mut self, token: u64) {
        self.clean = self.clean.max(token);
    }

    /// Records a reservation, unless its cluster entered since the reserve `began`: the sender may learn of
    /// that late.
    pub(crate) fn reserved(&mut self, cluster: &ClusterId, began: Instant, until: Instant) {
        if self
            .entered
            .get(cluster.uid())
            .is_none_or(|entered| *entered < began)
        {
            self.reserved = Some((cluster.uid().to_owned(), until));
        }
    }

    /// Checks S2 for slots.
    pub(crate) fn claimed(&mut self, slot: u64, job: Job, at: Instant) {
        let first = *self.slots.entry(slot).or_insert(job);
        if first != job {
            self.fail("S2", at, format!("slot {slot}: {first:?} and {job:?}"));
        }
    }
}

/// Checks S5: the remains of lost attempts, a while after a win without faults.
pub(crate) fn left(at: Instant, holder: &Candidate, masters: &[&Master]) -> Option<String> {
    let mut leases = masters.iter().filter_map(|master| master.lease(at));
    let lease = leases.find(|lease| Some(lease.nonce) != holder.nonce())?;
    Some(format!("{lease:?} is left under the lease of {}", holder.cluster))
}

/// Reports whether this master could vote for a candidate other than the holder.
fn available(master: &Master, at: Instant, holder: &Candidate) -> bool {
    master.sealed
        && master
            .lease(at)
            .is_none_or(|lease| Some(lease.nonce) != holder.nonce())
}

/// Checks S6: a script deleted a lease that its holder believes in.
pub(crate) fn deleted<'a>(
    before: &Master,
    after: &Master,
    at: Instant,
    mut candidates: impl Iterator<Item = &'a Candidate>,
) -> bool {
    before.lease(at).is_some_and(|lease| {
        !after.lease(at).is_some_and(|left| mine(left, lease))
            && candidates.any(|c| c.authority(at).is_some() && c.nonce() == Some(lease.nonce))
    })
}
