//! A master: what the scripts do, without Redis.

use redlock::lease::{LeaseValue, Obstacle};

use super::{
    clock::{Clock, MS},
    message::{Answer, Ask, Request},
};

/// A value with the last millisecond of this master's clock in which it is alive.
type Key<T> = Option<(T, u64)>;

#[derive(Debug)]
pub struct Master {
    pub clock: Clock,
    /// Changes with every restart.
    pub run: u32,
    pub sealed: bool,
    pub counter: u64,
    pub lease: Key<LeaseValue>,
    pub reserved: Key<String>,
    pub down: bool,
    pub hung_until: u64,
}

impl Master {
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            run: 0,
            sealed: true,
            counter: 0,
            lease: None,
            reserved: None,
            down: false,
            hung_until: 0,
        }
    }

    pub fn micros(&self, now: u64) -> u64 {
        self.clock.nanos(now) / 1_000
    }

    fn millis(&self, now: u64) -> u64 {
        self.clock.nanos(now) / MS
    }

    fn expire(&mut self, now: u64) {
        let millis = self.millis(now);
        self.lease.take_if(|(_, last)| *last < millis);
        self.reserved.take_if(|(_, last)| *last < millis);
    }

    /// When the lease with this nonce is gone, in true time.
    pub fn holds_until(&self, nonce: u128, now: u64) -> u64 {
        match &self.lease {
            Some((lease, last)) if lease.nonce.0 == nonce => self.clock.when((last + 1) * MS).max(now),
            _ => now,
        }
    }

    pub fn restart(&mut self, forget: bool) {
        self.run += 1;
        self.sealed = false;
        if forget {
            (self.counter, self.lease, self.reserved) = (0, None, None);
        }
    }

    pub fn reserve_for_nobody(&mut self, millis: u64, now: u64) {
        if self.sealed {
            self.reserved = Some(("nobody".into(), self.millis(now) + millis));
        }
    }

    /// Runs one script. The second value: a release is published.
    pub fn run(&mut self, request: &Request, now: u64) -> (Answer, bool) {
        let late = self.micros(now) > request.not_after;
        if !self.sealed || late {
            return (Answer::Unknown, false);
        }
        self.expire(now);
        let millis = self.millis(now);
        let mine = self
            .lease
            .as_ref()
            .is_some_and(|(l, _)| l.nonce == request.lease.nonce);
        let own = request.lease.cluster.to_string();
        match &request.ask {
            Ask::Grant { millis: px, floor } => {
                self.counter = self.counter.max(*floor);
                if let (true, Some((lease, _))) = (mine, &self.lease) {
                    return (Answer::Granted(lease.grant), false);
                }
                if let Some(blocked) = self.obstacle(&own, millis) {
                    return (blocked, false);
                }
                self.counter += 1;
                self.put(request, self.counter, millis + px);
                (Answer::Granted(self.counter), false)
            }
            Ask::Confirm { number, token } => {
                let exact = mine && self.lease.as_ref().is_some_and(|(l, _)| l.grant == *number);
                if !exact {
                    return (Answer::NotMine, false);
                }
                self.counter = self.counter.max(*token);
                (Answer::Done, false)
            }
            Ask::Renew { token, millis: px } => {
                let other = self.lease.is_some() && !mine;
                let reserved = self.reserved.as_ref().is_some_and(|(to, _)| *to != own);
                if (other || reserved)
                    && let Some(blocked) = self.obstacle(&own, millis)
                {
                    return (blocked, false);
                }
                match &mut self.lease {
                    Some((_, last)) => *last = millis + px,
                    None => {
                        self.counter = self.counter.max(*token);
                        self.put(request, *token, millis + px);
                    }
                }
                (Answer::Done, false)
            }
            Ask::Release { announce } => {
                if !mine {
                    return (Answer::NotMine, false);
                }
                self.lease = None;
                if *announce {
                    self.reserved.take_if(|(to, _)| *to == own);
                }
                (Answer::Done, *announce)
            }
            Ask::Reserve { to } => {
                let to = to.to_string();
                let other = self
                    .reserved
                    .as_ref()
                    .is_some_and(|(for_whom, _)| *for_whom != to);
                match &self.lease {
                    Some((_, last)) if mine && !other => {
                        self.reserved = Some((to, (*last).max(millis + 1)));
                        self.lease = None;
                        (Answer::Done, true)
                    }
                    _ => (Answer::NotMine, false),
                }
            }
            Ask::Observe => {
                let ours = self.reserved.is_some();
                let free = if ours { Answer::Ours } else { Answer::Free };
                (self.obstacle(&own, millis).unwrap_or(free), false)
            }
        }
    }

    fn put(&mut self, request: &Request, grant: u64, last: u64) {
        let lease = LeaseValue {
            grant,
            ..request.lease.clone()
        };
        self.lease = Some((lease, last));
    }

    /// What stands in the way of a candidate of cluster `own`: the lease first, until both are gone.
    fn obstacle(&self, own: &str, millis: u64) -> Option<Answer> {
        let hold = self.reserved.as_ref().filter(|(to, _)| to != own);
        let last = self.lease.as_ref().map(|(_, last)| *last);
        let last = last.max(hold.map(|(_, last)| *last))?;
        let what = match (&self.lease, hold) {
            (Some((lease, _)), _) => Obstacle::Lease(lease.clone()),
            (None, Some((to, _))) => Obstacle::Reserved(to.clone()),
            (None, None) => return None,
        };
        Some(Answer::Blocked(what, last.saturating_sub(millis)))
    }
}
