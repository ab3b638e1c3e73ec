//! Node fencing: decides, by the replies of the masters, whether the pods of a lock may run on a node.
//!
//! Pure, like the rest of the crate. An [`Observation`] is one round of the read-only script. A [`Watch`] takes the rounds
//! of one lock and finds a permit or contrary evidence. A [`Record`] is one pod: it freezes the pod before its permit ends,
//! and thaws or kills the pod by the rounds that follow. The agent carries out the effects.

mod clock;
mod lease;
mod mark;
mod observation;
mod reach;
mod reading;
mod record;
mod succession;
#[cfg(test)]
mod tests;
mod watch;

use std::time::Duration;

pub use clock::ClockWatch;
pub use lease::{FencedLease, Removal, own_reservation};
pub use mark::{FenceMark, MARK_OBJECT, MarkError, MarkRegister};
pub use observation::{Finding, Observation, Permit, Withheld};
pub use reach::{Begun, Reach, UnknownPods};
pub use reading::{Left, Reading, reading, readings};
pub use record::{Effect, Input, Lineage, Origin, Presence, Record, Refusal, Release, Run, State, Stored};
pub use succession::{Predecessor, Succession};
pub use watch::{Pace, Watch};

/// The time by which the freeze of a pod precedes the end of its permit (P-103). The agent or the guardian writes the
/// freeze within this time: the write waits for the kernel while containers of the node start and end.
pub const FREEZE_BEFORE: Duration = Duration::from_millis(500);

/// The time after which a frozen pod is killed: its frozen sessions hold locks in databases.
pub const KILL_AFTER: Duration = Duration::from_secs(30);

/// The time for which a call to publish the volume waits for a permit. The back-off of the kubelet between
/// two calls grows to 122 s.
pub const PUBLISH_WAIT: Duration = Duration::from_secs(90);

/// The interval at which freeze and kill are repeated, since a cgroup may be created again under the same
/// path.
pub const REPEAT_EVERY: Duration = Duration::from_secs(1);

/// The time by which the own reservation outlasts a marked lease at each renewal, so that a sibling adopts
/// the pods without a freeze.
pub const OWN_RESERVATION: Duration = Duration::from_secs(5);
