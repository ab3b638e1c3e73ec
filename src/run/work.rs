//! The command under one lease: begins, receives the wrapper's signals, and is stopped before the lease ends.

mod pass_on;

use std::{os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use nix::{sys::signal::Signal, unistd::Pid};

use super::{
    RunError, Wrapper,
    election::Election,
    group::Group,
    launcher::{Go, Launcher},
    record::Order,
};
use crate::{
    clock,
    lease::{Authority, BootInstant, Timings},
};

/// Interval of the search for the rest of a group: the end of a process that is not a child causes no event.
const SEARCH_INTERVAL: Duration = Duration::from_millis(10);

/// How the command ended. No process of its group runs any more.
#[derive(Debug)]
pub(super) enum End {
    /// The command ended by itself.
    Exited(ExitStatus),
    /// The lease was lost, and the command was stopped.
    Lost,
    /// The lease was lost before the command began.
    TooLate,
    /// A signal asked this process to end before the command began.
    Asked(Signal),
    /// The launcher ended before the command began: another one may begin under the same lease.
    NeverBegan(ExitStatus),
}

/// The deadlines if the lease is not renewed (P-99).
#[derive(Clone, Copy, Debug)]
struct Ends {
    /// The time at which the command is asked to stop.
    stop: BootInstant,
    /// The time at which the wrapper and the guardian kill the rest of the group. Either may wait for a CPU,
    /// for which the rest of the lease is reserved.
    kill: BootInstant,
}

impl Ends {
    fn of(valid_until: BootInstant, timings: &Timings) -> Self {
        let kill = valid_until - timings.slack();
        Self {
            stop: kill - timings.stop,
            kill,
        }
    }

    /// Returns the order to the guardian. Its deadline is the latest time at which the wrapper kills.
    fn order(self, group: Pid) -> Order {
        Order {
            group,
            kill_at: self.kill,
        }
    }

    /// Returns the deadlines after a step of the local clock: no grace, as the rest of the lease is unknown.
    fn clock_stepped(self, now: BootInstant) -> Self {
        Self {
            kill: self.kill.min(now),
            ..self
        }
    }

    /// Returns the time at which the rest of a stopped command is killed: `before`, or when the grace ends,
    /// and never later than the lease allows.
    fn kill_at(self, before: Option<BootInstant>, grace: Duration, now: BootInstant) -> BootInstant {
        before.unwrap_or(now + grace).min(self.kill)
    }
}

/// The state of a command under one lease.
struct Work<'a> {
    wrapper: &'a mut Wrapper,
    election: &'a mut Election,
    timings: &'a Timings,
    authority: Authority,
    ends: Ends,
    lost: bool,
    leader_ended: bool,
    /// Whether the command had ended under the lease when its group was first asked to stop.
    ended_first: bool,
    /// Whether the terminal stopped the command after a request to end.
    stuck: bool,
    /// The time at which the rest is killed, once the stop signal was sent.
    kill_at: Option<BootInstant>,
    /// The error of the election, the guardian or a kill after which the command is stopped.
    broken: Option<RunError>,
}

impl Wrapper {
    /// Runs the command until it ends, which is before the lease ends.
    ///
    /// # Errors
    /// Returns an error if the elector or the guardian has ended, or if the rest cannot be found, killed or
    /// reaped. The command was stopped; a process of it may run only after [`RunError::Search`].
    pub(super) async fn work(
        &mut self,
        election: &mut Election,
        launcher: Launcher,
        authority: Authority,
        timings: &Timings,
    ) -> Result<End, RunError> {
        let ends = Ends::of(authority.valid_until, timings);
        if let Some(signal) = self.arm(&launcher, ends).await? {
            return Ok(End::Asked(signal));
        }
        if let Some(terminal) = &self.terminal {
            terminal.give(launcher.id());
        }
        // Checked after the last await: the time may be over.
        let begins = election.authority(authority.token).is_some() && clock::now() < ends.stop;
        let (group, report) = if begins {
            launcher.begin(Go {
                token: authority.token,
                before: ends.kill,
            })
        } else {
            launcher.give_up()
        };
        let mut work = Work {
            wrapper: &mut *self,
            election,
            timings,
            authority,
            ends,
            lost: !begins,
            leader_ended: false,
            ended_first: false,
            stuck: false,
            kill_at: None,
            broken: None,
        };
        let followed = work.follow(&group).await;
        let (lost, ended_first, broken) = (work.lost, work.ended_first, work.broken);
        if followed.is_err() {
            let _ = group.kill();
        }
        self.guard.disarm()?;
        if let Some(terminal) = &self.terminal {
            terminal.take_back(group.id());
        }
        let status = group.reap().map_err(RunError::Reap)?;
        followed?;
        let begun = report.has_begun();
        match (broken, self.asked_to_end) {
            (Some(error), _) => Err(error),
            (None, Some(signal)) if !begun => Ok(End::Asked(signal)),
            _ if lost && !begun => Ok(End::TooLate),
            _ if lost && (!ended_first || is_killed(status)) => Ok(End::Lost),
            _ if !begun => Ok(self.asked_by(status).map_or(End::NeverBegan(status), End::Asked)),
            _ => Ok(End::Exited(status)),
        }
    }

    /// Makes the guardian kill the launcher at the deadline. Returns a signal that asked this process to end
    /// meanwhile; the launcher is then not guarded any more.
    ///
    /// # Errors
    /// Returns an error if the guardian has ended or does not answer.
    async fn arm(&mut self, launcher: &Launcher, ends: Ends) -> Result<Option<Signal>, RunError> {
        if let Err(unguarded) = self.guard.arm(ends.order(launcher.id())).await {
            self.guard.disarm()?;
            return Err(unguarded.into());
        }
        let asked = self.asked(launcher).await;
        if asked.is_some() {
            self.guard.disarm()?;
        }
        Ok(asked)
    }

    /// Returns the signal that ended a launcher, if it asks this process to end: a terminal or a supervisor sent it
    /// only to the group of the launcher.
    fn asked_by(&self, ended: ExitStatus) -> Option<Signal> {
        let signal = Signal::try_from(ended.signal()?).ok()?;
        self.is_asked_to_end_by(signal).then_some(signal)
    }
}

/// Reports whether SIGKILL ended a process: after a lost lease, the guardian may have sent it.
fn is_killed(ended: ExitStatus) -> bool {
    ended.signal() == Some(Signal::SIGKILL as i32)
}

impl Work<'_> {
    /// Follows the command until no process of its group runs.
    async fn follow(&mut self, group: &Group) -> Result<(), RunError> {
        loop {
            // Read before the lease: a command that ended while this process stood still may have ended after its lease.
            self.leader_ended = self.leader_ended || group.leader_ended();
            if !self.lost {
                self.check_lease(group.id());
            }
            // This also applies during the grace after a lost lease.
            if self.lost && self.election.clock_stepped_after(self.authority.token) {
                self.ends = self.ends.clock_stepped(clock::now());
            }
            if self.leader_ended {
                let killed = self.kill_at.is_some_and(|kill_at| clock::now() >= kill_at);
                match group.runs(self.wrapper.guard.process()) {
                    Ok(false) => return Ok(()),
                    Err(error) if killed => return Err(RunError::Search(error)),
                    // A process that may run gets its grace.
                    Ok(true) | Err(_) => {}
                }
            }
            let now = clock::now();
            if self.lost || self.leader_ended || self.stuck {
                let before = self.kill_at;
                self.kill_at = Some(self.ends.kill_at(before, self.timings.stop, now));
                if before.is_none() {
                    self.ended_first = self.leader_ended && !self.lost;
                    self.stop(group, now);
                }
            }
            if self.kill_at.is_some_and(|kill_at| now >= kill_at) {
                self.kill(group);
            }
            let wake = match self.kill_at {
                // The group is searched and killed again: a process may have been started meanwhile.
                Some(kill_at) if self.leader_ended || now >= kill_at => now + SEARCH_INTERVAL,
                Some(kill_at) => kill_at,
                None => self.ends.stop,
            };
            let usable = self.broken.is_none();
            // The election reports a step of the clock even if the guardian cannot be used.
            let contends = !matches!(self.broken, Some(RunError::Ended(_)));
            tokio::select! {
                biased;
                () = clock::sleep_until(wake) => {}
                changed = self.election.changed(), if contends => if let Err(ended) = changed {
                    self.breaks(ended.into());
                },
                unguarded = self.wrapper.guard.keep(), if usable => self.breaks(unguarded.into()),
                signal = self.wrapper.signals.next() => self.on_signal(signal, group),
            }
        }
    }

    /// Moves the deadlines with the lease, or finds that the lease is lost.
    fn check_lease(&mut self, group: Pid) {
        match self.election.authority(self.authority.token) {
            Some(authority) => {
                self.ends = Ends::of(authority.valid_until, self.timings);
                if let Err(unguarded) = self.wrapper.guard.extend(self.ends.order(group)) {
                    self.breaks(unguarded.into());
                }
            }
            None => self.lost = true,
        }
        // This also applies when the election reported nothing.
        self.lost |= clock::now() >= self.ends.stop;
    }

    /// Treats the lease as lost: the lease or the guardian cannot be relied on any more.
    fn breaks(&mut self, error: RunError) {
        self.lost = true;
        self.broken = Some(error);
    }

    fn stop(&self, group: &Group, now: BootInstant) {
        let signal = self.wrapper.options.stop_signal;
        group.stop(signal);
        if self.lost {
            let left = self.ends.kill.left(now).as_secs_f64();
            let progress = &self.wrapper.progress;
            progress.print(&format!("lease lost: {signal} to the command, {left:.1} s left"));
        }
    }

    /// Kills the group. If that fails, the run continues until its processes end: the lock is not released before.
    fn kill(&mut self, group: &Group) {
        if let Err(error) = group.kill()
            && self.broken.is_none()
        {
            self.wrapper
                .progress
                .print(&format!("{error}; waiting for the command to end"));
            self.breaks(RunError::Kill(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::timing::GivenTimings;

    const SECOND: Duration = Duration::from_secs(1);

    fn ends(lease: Duration, grace: Duration) -> (Ends, BootInstant) {
        let given = GivenTimings {
            lease_duration: Some(lease),
            ..GivenTimings::default()
        };
        let timings = Timings::resolve(given, grace, None, 60 * SECOND).unwrap();
        let valid_until = BootInstant::default() + 1_000 * SECOND;
        (Ends::of(valid_until, &timings), valid_until)
    }

    #[test]
    fn guardian_kills_a_tenth_of_the_lease_before_its_end() {
        for (lease, reserve) in [
            (3 * SECOND, SECOND * 3 / 10),
            (6 * SECOND, SECOND * 6 / 10),
            (15 * SECOND, SECOND),
            (60 * SECOND, SECOND),
        ] {
            let (ends, valid_until) = ends(lease, SECOND);
            let order = ends.order(Pid::from_raw(7));
            assert_eq!(order.kill_at + reserve, valid_until, "lease {lease:?}");
            assert_eq!(order.kill_at, ends.kill, "the wrapper kills then, too");
            assert_eq!(ends.stop + SECOND, ends.kill, "the grace comes before it");
        }
    }

    /// The command has ended, its other processes have their grace, and the clock of the machine stood still.
    #[test]
    fn lease_that_is_found_over_ends_the_grace() {
        let (ends, _) = ends(15 * SECOND, 5 * SECOND);
        let ended = BootInstant::default() + 900 * SECOND;
        let kill_at = ends.kill_at(None, 5 * SECOND, ended);
        assert_eq!(kill_at, ended + 5 * SECOND);
        let later = ended + SECOND;
        assert_eq!(
            ends.kill_at(Some(kill_at), 5 * SECOND, later),
            kill_at,
            "not anew"
        );
        let over = ends.clock_stepped(later);
        assert_eq!(over.kill_at(Some(kill_at), 5 * SECOND, later), later);
        assert_eq!(
            over.clock_stepped(later + SECOND).kill,
            later,
            "it has ended already"
        );
    }
}
