//! Replaces the server behind the name of a master: the old server loses its vote first, and for good.
//!
//! Urls are not part of the fingerprint, so one cluster may use the new server while another still uses the
//! old one. If both voted under one name, two candidates could each win a majority. Removing only the seal is
//! not enough: a cluster that still uses the old server would seal it again. Every cluster refuses a
//! fingerprint of the form "retired".

use std::time::Duration;

use redlock_core::{Admission, eligibility::RETIRED, script::RETIRE};

use super::rounds::{self, NotDone};
use crate::masters::{ConfigError, Ineligible, MasterFacts, Masters, Unknown, link::Link};

/// The statement of the caller about the old server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldServer {
    /// The old server must answer and lose its vote.
    MustAnswer,
    /// The caller states that the old server is stopped for good, or was retired for the new server.
    Stated,
}

/// The result, and whether the new url may be used ([`Masters::replace_url`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "only some outcomes allow the new url"]
pub enum RetireOutcome {
    /// Both urls lead to one server: nothing to retire. Use the new one.
    SameServer,
    /// The old server no longer has a vote, by this call or by an earlier one for the same new server. Use
    /// the new one.
    Retired,
    /// The old server votes in another quorum, and never did in this one. Use the new one.
    NotOurs,
    /// The old server is also another master of this quorum, and has no vote under two names. It stays that
    /// master. Use the new one.
    AnotherMaster,
    /// The old server does not answer, but was stated to be stopped. Use the new one.
    StatedStopped,
    /// The old server may vote in another cluster: retry, or state that it is stopped.
    OldUnreachable { reason: Unknown },
    /// The old server answers and still has its vote.
    OldRefused { reason: NotDone },
    /// The old server was retired for another server, or for an earlier run of the new one; `retirement` is the
    /// text that it stores in place of its fingerprint. Two servers could vote under one name: if the new server is the successor, state that.
    RetiredForAnother { retirement: String },
    /// Without the vote of the old server, or of the new one if others use it, no majority would remain: wait
    /// until more of the others vote.
    OthersMissing { voting: usize, needed: usize },
    /// The two servers cannot be compared: wait.
    NewUnreachable { reason: Unknown },
    /// The new server could not vote in this quorum. The old one keeps its vote.
    NewRefused { reason: Ineligible },
}

impl RetireOutcome {
    /// Reports whether the new url may be used.
    #[must_use]
    pub const fn allows_new_url(&self) -> bool {
        matches!(
            self,
            Self::SameServer | Self::Retired | Self::NotOurs | Self::AnotherMaster | Self::StatedStopped
        )
    }
}

impl Masters {
    /// Removes the vote of the server behind `old_url` as master `name`, so that the server behind `new_url`
    /// may vote instead (P-28). The new server waits for its seal like every master that lost its memory.
    /// Idempotent; works whether or not this set uses one of the two urls.
    ///
    /// # Errors
    /// Returns an error for a name that no master has, or for a url that cannot be used.
    pub async fn retire(
        &self,
        name: &str,
        (old_url, new_url): (&str, &str),
        stated: OldServer,
    ) -> Result<RetireOutcome, ConfigError> {
        let (old, new) = (self.beside(name, old_url)?, self.beside(name, new_url)?);
        let results = tokio::join!(old.inspect_once(), new.inspect_once());
        let (was, is) = match (results, stated) {
            ((_, Err(reason)), _) => return Ok(RetireOutcome::NewUnreachable { reason }),
            ((Err(reason), Ok(_)), OldServer::MustAnswer) => {
                return Ok(RetireOutcome::OldUnreachable { reason });
            }
            ((Err(_), Ok(is)), OldServer::Stated) => (None, is),
            ((Ok(was), Ok(is)), _) => (Some(was), is),
        };
        if was.as_ref().is_some_and(|was| was.run_id == is.run_id) {
            return Ok(RetireOutcome::SameServer);
        }
        if let Some(reason) = self.ineligible(&new, &is) {
            return Ok(RetireOutcome::NewRefused { reason });
        }
        let fingerprint = was.as_ref().map(|was| was.fingerprint.as_str());
        if let Some(fingerprint) = fingerprint.filter(|fingerprint| fingerprint.starts_with(RETIRED)) {
            if fingerprint.contains(&is.run_id) {
                // If the new server already has a seal, the wait for that seal began after the retirement.
                return Ok(RetireOutcome::Retired);
            }
            if stated == OldServer::MustAnswer {
                let retirement = fingerprint.chars().take(300).collect();
                return Ok(RetireOutcome::RetiredForAnother { retirement });
            }
        }
        // Without the id of this quorum, a stored id cannot be compared: every seal would count as one of another
        // quorum.
        let identified = new.quorum_id().is_some();
        let voting = self.others(&new).filter(|link| link.votes()).count();
        let needed = self.size().majority();
        let votes = was.as_ref().is_some_and(MasterFacts::sealed) && stated == OldServer::MustAnswer;
        let unknown = !identified && was.as_ref().is_some_and(MasterFacts::sealed);
        if unknown || (voting < needed && (votes || is.sealed())) {
            return Ok(RetireOutcome::OthersMissing { voting, needed });
        }
        // The new server loses its seal before the old server loses its vote: an earlier seal or wait does
        // not cover later votes of the old server.
        let limit = self.fingerprint().acquire_limit();
        if let Err(reason) = take_vote(&new, &is, "", limit).await {
            let reason = match reason {
                NotDone::Unknown(reason) => reason,
                other => Unknown::Reply(other.to_string()),
            };
            return Ok(RetireOutcome::NewUnreachable { reason });
        }
        let Some(was) = was else {
            return Ok(RetireOutcome::StatedStopped);
        };
        if self
            .others(&old)
            .any(|link| link.known().is_some_and(|facts| facts.run_id == was.run_id))
        {
            return Ok(RetireOutcome::AnotherMaster);
        }
        let text = format!(
            "{RETIRED} {name} is the server {} at {} now",
            is.run_id,
            new.url()
        );
        Ok(match take_vote(&old, &was, &text, limit).await {
            Ok(()) => RetireOutcome::Retired,
            // Another process retired it in the meantime or before, for a server that the caller states to be
            // the right one.
            Err(NotDone::Retired) if stated == OldServer::Stated => RetireOutcome::Retired,
            // Sealed since it was read.
            Err(NotDone::Unknown(Unknown::OtherFingerprint)) if !identified => {
                RetireOutcome::OthersMissing { voting, needed }
            }
            Err(NotDone::Unknown(Unknown::OtherFingerprint)) => RetireOutcome::NotOurs,
            Err(NotDone::Unknown(reason)) if !reason.is_of_server() => {
                RetireOutcome::OldUnreachable { reason }
            }
            Err(reason) => RetireOutcome::OldRefused { reason },
        })
    }

    fn others(&self, new: &Link) -> impl Iterator<Item = &Link> {
        let index = new.index;
        let links = self.links().iter().map(|link| &**link);
        links.filter(move |link| link.index != index)
    }

    /// Returns the reason why the new server could not vote here, including that it is another master already.
    fn ineligible(&self, new: &Link, facts: &MasterFacts) -> Option<Ineligible> {
        let twice = self
            .others(new)
            .any(|link| link.known().is_some_and(|other| other.run_id == facts.run_id));
        new.judge(facts).or(twice.then_some(Ineligible::Duplicate))
    }
}

/// Removes the vote of a server. Takes no longer than an attempt to acquire: the wait of a seal covers no
/// longer operation.
async fn take_vote(link: &Link, facts: &MasterFacts, text: &str, limit: Duration) -> Result<(), NotDone> {
    let stamp = link.quorum.read(|engine, _| engine.stamp());
    let fill = |command: &mut redis::Cmd, not_after| {
        command.arg(2).arg(&*link.keys.meta).arg(&*link.keys.probe);
        command.arg(not_after).arg(&facts.run_id).arg(&*stamp).arg(text);
    };
    let deadline = link.command_timeout().min(limit);
    let exchange = link.call(&RETIRE, Admission::Connected, deadline, fill).await;
    rounds::done(exchange.reply).map(|_| ())
}
