//! One fault and its effects: its counts and its timeline.

use std::time::{Duration, Instant};

use redlock::clock;
use redlock::lease::BootInstant;
use redlock_testkit::longest_stall_since;

use super::faults::{Fault, Mark};
use super::leases::Lease;
use super::pair::{Held, Pair};
use crate::fixture::kubelet::{Overlap, Run, overlaps};

pub struct Episode {
    pub fault: Fault,
    pub before: Held,
    pub after: Held,
    pub marks: Vec<Mark>,
    /// The leases that were won.
    pub leases: Vec<Lease>,
    /// The runs at any time from the first mark to the end.
    pub runs: Vec<Run>,
    began: BootInstant,
    ended: BootInstant,
}

impl Episode {
    pub fn of(pair: &Pair, fault: Fault, before: Held, after: Held, marks: Vec<Mark>) -> Self {
        let began = marks[0].0;
        let mut leases = pair.leases();
        leases.retain(|lease| lease.at >= began);
        let mut runs = pair.runs();
        runs.retain(|run| run.end.is_none_or(|end| end >= began));
        Self {
            fault,
            before,
            after,
            marks,
            leases,
            runs,
            began,
            ended: clock::now(),
        }
    }

    pub fn transitions(&self) -> usize {
        self.leases.iter().filter(|lease| lease.is_acquired()).count()
    }

    pub fn has_moved(&self) -> bool {
        self.before.cluster != self.after.cluster
    }

    /// Reports whether a pod ended.
    pub fn is_noticed(&self) -> bool {
        self.runs.iter().any(|run| run.end.is_some())
    }

    /// Reports whether a lease was lost.
    pub fn has_lost(&self) -> bool {
        self.leases.iter().any(|lease| lease.kind == "lost")
    }

    /// Reports whether the machine was too busy: a replica that reached all masters lost its lease, or a
    /// sibling that reached them missed the moment in which other clusters leave it a lock.
    pub fn is_starved(&self) -> bool {
        self.has_lost() && (self.fault != Fault::CutHolder || self.has_moved())
    }

    /// Reports whether the holder lost its API server and, on a machine that was too busy to renew, also its
    /// lease. Then no replica could stop the work, as if the holder were cut off from both.
    pub fn is_double(&self) -> bool {
        let without_api = matches!(self.fault, Fault::StopApiServer | Fault::CutFromApiServer);
        without_api && self.has_lost()
    }

    pub fn overlaps(&self) -> Vec<Overlap> {
        overlaps(&self.runs)
    }

    /// Returns the total time in which nothing ran.
    pub fn gap(&self) -> Duration {
        let (mut gap, mut until) = (Duration::ZERO, self.began);
        for run in &self.runs {
            gap += run.start.since(until);
            until = until.max(run.end.unwrap_or(self.ended));
        }
        gap
    }

    /// Returns the timeline as a table in Markdown.
    pub fn timeline(&self) -> String {
        let mut lines: Vec<Mark> = self.marks.clone();
        for lease in &self.leases {
            let what = format!("{}: lease {}, token {}", lease.replica, lease.kind, lease.token);
            lines.push((lease.at, what));
        }
        for run in &self.runs {
            if run.start >= self.began {
                lines.push((run.start, format!("a pod of {} runs", run.cluster)));
            }
            if let Some(end) = run.end {
                lines.push((end, format!("a pod of {} has ended", run.cluster)));
            }
        }
        lines.sort();
        let began = Instant::now().checked_sub(clock::now().since(self.began));
        let stall = began.map_or(Duration::ZERO, longest_stall_since).as_millis();
        if stall > 0 {
            lines.push((self.ended, format!("the machine stalled for {stall} ms")));
        }
        let mut text = format!("**{}**\n\n| ms | |\n|---:|---|\n", self.fault.title());
        for (at, what) in lines {
            let after = at.since(self.began).as_millis();
            text += &format!("| {after} | {what} |\n");
        }
        text
    }
}
