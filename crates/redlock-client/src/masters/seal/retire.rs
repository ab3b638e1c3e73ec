//! Another server under the name of a master: the old one is taken its vote first, and for good.
//!
//! Urls are not part of the fingerprint, so one cluster may use the new server while another still uses the old one. If
//! both voted under one name, two candidates could each win a majority. Without its seal alone the old one would be
//! sealed again by whoever still uses it; a fingerprint that says "retired" is refused by everybody.

use std::time::Duration;

use redlock_core::{Admission, eligibility::RETIRED, script::RETIRE};

use super::rounds::{self, NotDone};
use crate::masters::{ConfigError, Ineligible, MasterFacts, Masters, Unknown, link::Link};

/// What is known of the old server beside what it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldServer {
    /// It must answer and be taken its vote.
    MustAnswer,
    /// Somebody states that it is stopped for good, or that this is the successor for which it was retired.
    Stated,
}

/// What came of it, and whether the new url may be used ([`Masters::replace_url`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "only some outcomes allow the new url"]
pub enum RetireOutcome {
    /// Both urls lead to one server: nothing to retire. Use the new one.
    SameServer,
    /// The old server has no vote any more, by this call or by an earlier one for the same new server. Use the new one.
    Retired,
    /// The old server votes in another quorum, and never did in this one. Use the new one.
    NotOurs,
    /// It is another master of this quorum, too, and has no vote under two names. As that one it stays. Use the new one.
    AnotherMaster,
    /// It does not answer, but was stated to be stopped. Use the new one.
    StatedStopped,
    /// It may vote in another cluster: ask again, or have it stated that it is stopped.
    OldUnreachable { reason: Unknown },
    /// It answers and still has its vote.
    OldRefused { reason: NotDone },
    /// It was retired for another server than this one, or that one restarted since; its own words. Two servers would
    /// vote under one name: have it stated that this is the one.
    RetiredForAnother { said: String },
    /// Without the vote of the old server, or of the new one where others use it, no majority would be left: wait until
    /// more of the others vote.
    OthersMissing { voting: usize, needed: usize },
    /// The two cannot be compared: wait.
    NewUnreachable { reason: Unknown },
    /// It could not vote in this quorum. The old one keeps its vote.
    NewRefused { reason: Ineligible },
}

impl RetireOutcome {
    /// Whether nothing is in the way of the new url any more.
    #[must_use]
    pub const fn allows_new_url(&self) -> bool {
        matches!(
            self,
            Self::SameServer | Self::Retired | Self::NotOurs | Self::AnotherMaster | Self::StatedStopped
        )
    }
}

impl Masters {
    /// Takes the server behind `old_url` its vote as master `name`, so that the one behind `new_url` may have it. The
    /// new one waits for its seal like every master that lost its memory. Idempotent; whether this set uses one of the
    /// two urls does not matter.
    ///
    /// # Errors
    /// A name that no master has, or a url that cannot be used.
    pub async fn retire(
        &self,
        name: &str,
        (old_url, new_url): (&str, &str),
        stated: OldServer,
    ) -> Result<RetireOutcome, ConfigError> {
        let (old, new) = (self.beside(name, old_url)?, self.beside(name, new_url)?);
        let looks = tokio::join!(old.look_once(), new.look_once());
        let (was, is) = match (looks, stated) {
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
        let said = was.as_ref().map(|was| was.fingerprint.as_str());
        if let Some(said) = said.filter(|said| said.starts_with(RETIRED)) {
            if said.contains(&is.run_id) {
                // Its seal, if it has one by now, is of a wait that began after that.
                return Ok(RetireOutcome::Retired);
            }
            if stated == OldServer::MustAnswer {
                let said = said.chars().take(300).collect();
                return Ok(RetireOutcome::RetiredForAnother { said });
            }
        }
        // Without the id of this quorum, no stored id can be told from it: every seal would be one of another quorum.
        let identified = new.quorum_id().is_some();
        let voting = self.others(&new).filter(|link| link.votes()).count();
        let needed = self.size().majority();
        let votes = was.as_ref().is_some_and(MasterFacts::sealed) && stated == OldServer::MustAnswer;
        let unknown = !identified && was.as_ref().is_some_and(MasterFacts::sealed);
        if unknown || (voting < needed && (votes || is.sealed())) {
            return Ok(RetireOutcome::OthersMissing { voting, needed });
        }
        // Before the old one loses its vote: a seal or a wait of an earlier time knows nothing of what the old one
        // voted for since.
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
            // By whoever came between, or before: what for was stated to be right.
            Err(NotDone::Retired) if stated == OldServer::Stated => RetireOutcome::Retired,
            // Sealed since it was looked at.
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

    /// Why the new server could not vote here; also if it is another master already.
    fn ineligible(&self, new: &Link, facts: &MasterFacts) -> Option<Ineligible> {
        let twice = self
            .others(new)
            .any(|link| link.known().is_some_and(|other| other.run_id == facts.run_id));
        new.judge(facts).or(twice.then_some(Ineligible::Duplicate))
    }
}

/// Takes no longer than an attempt to acquire: the wait of a seal counts with nothing that is under way for longer.
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
