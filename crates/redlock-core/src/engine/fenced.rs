//! Decides which requests of a fenced lock are sent: a confirmed stop precedes the removal of a marked lease
//! or an own reservation.

use std::sync::Arc;

use crate::{
    Command, Completion, LeaseAttempt, MAX_MASTERS, Mark, command::Item, fence::Removal, planted::Plant,
};

/// Returns the command as it may be sent, or `Err` with the completion of one that may not be sent (P-109). Commands
/// of locks without fencing do not change.
pub(super) fn admit(command: Command, plant: Plant) -> Result<Command, Completion> {
    let item = Item::Command(command);
    let removal = item
        .attempt()
        .and_then(|attempt| Some(attempt.fence()?.removal()));
    let Item::Command(command) = item else {
        return Err(not_sent());
    };
    let removal = removal.map(|removal| planted(removal, plant));
    let Some(removal) = removal else {
        // Only a fenced lock can forbid starts.
        let closes = matches!(
            command,
            Command::Mark {
                mark: Mark::Closed,
                ..
            }
        );
        return if closes { Err(not_sent()) } else { Ok(command) };
    };
    let allowed = match &command {
        Command::Mark { attempt, .. } => marks(attempt, &command),
        Command::Undo { .. } => removal == Removal::Lease,
        Command::Release { attempt } if removal == Removal::Lease && !plant.is(Plant::UnmarkedReleased) => {
            let (attempt, publish) = (Arc::clone(attempt), true);
            return Ok(Command::Undo { attempt, publish });
        }
        Command::Release { .. } => removal != Removal::Nothing,
        // A sibling continues the running work. Any other cluster would start its own at the same time.
        Command::Reserve { attempt, cluster } => {
            removal != Removal::Nothing || attempt.fence().is_some_and(|fence| fence.is_of(cluster))
        }
        _ => true,
    };
    if allowed { Ok(command) } else { Err(not_sent()) }
}

/// Returns the removal that a planted fault permits.
fn planted(removal: Removal, plant: Plant) -> Removal {
    match removal {
        Removal::Nothing if plant.is(Plant::MarkForgotten) => Removal::Lease,
        Removal::Nothing if plant.is(Plant::ReleasedEarly) => Removal::All,
        removal => removal,
    }
}

fn marks(attempt: &LeaseAttempt, command: &Command) -> bool {
    let (Some(fence), Command::Mark { token, mark, .. }) = (attempt.fence(), command) else {
        return false;
    };
    match mark {
        Mark::Held { delay } => fence.send(*token, attempt.stem.nonce(), *delay),
        Mark::Closed => fence.mark().is_some(),
        Mark::Clean => {
            fence.record_gone();
            true
        }
    }
}

/// Records for a fenced lease that a majority carried out this item.
pub(super) fn done(item: &Item) {
    let Item::Command(Command::Mark { attempt, mark, .. }) = item else {
        return;
    };
    match (attempt.fence(), mark) {
        (Some(fence), Mark::Closed) => fence.record_closed(),
        (Some(fence), Mark::Clean) => fence.record_confirmed(),
        _ => {}
    }
}

/// Returns the completion of a request that was sent to no master.
fn not_sent() -> Completion {
    Completion::Done {
        majority: false,
        refused: false,
        answers: Box::new([const { None }; MAX_MASTERS]),
    }
}
