//! Writes the summary for people.

use std::fmt::Write;

use super::{Kind, Numbers, Report};

/// Writing into a String cannot fail, so the results of `writeln!` are ignored.
pub(super) fn text(report: &Report) -> String {
    let mut out = String::from("\nSummary\n");
    takeovers(&mut out, report);
    let _ = writeln!(out, "\n  expected");
    for check in &report.checks {
        let mark = if check.ok { '✓' } else { '✗' };
        let _ = writeln!(out, "    {mark} {}: {}", check.what, check.detail);
    }
    promises(&mut out, report);
    sources(&mut out, report);
    let _ = writeln!(
        out,
        "\n  {} after {:.1} s; the same plot again: --seed {}",
        if report.ok { "All held" } else { "FAILED" },
        report.duration_seconds,
        report.seed
    );
    if let Some(failure) = &report.failure {
        let _ = writeln!(out, "  {failure}");
    }
    out
}

fn takeovers(out: &mut String, report: &Report) {
    let _ = writeln!(
        out,
        "  {:<46} {:>3} {:>10} {:>10}",
        "takeover", "n", "median", "max"
    );
    let mut line = |name: &str, numbers: &Numbers| {
        let _ = writeln!(
            out,
            "  {name:<46} {:>3} {:>7.1} ms {:>7.1} ms",
            numbers.n, numbers.median_milliseconds, numbers.max_milliseconds
        );
    };
    for all in &report.by_kind {
        line(
            match all.kind {
                Kind::Crash => "after kill -9, from the end of the lease",
                Kind::Release => "after a clean stop, from the release",
                Kind::Pause => "after SIGSTOP, from the end of the lease",
            },
            all,
        );
        for one in report.by_lock.iter().filter(|one| one.kind == all.kind) {
            line(&format!("    {}", one.lock.as_deref().unwrap_or_default()), one);
        }
    }
}

fn promises(out: &mut String, report: &Report) {
    let _ = writeln!(
        out,
        "\n  overlaps: {} (must be 0), among {} holders",
        report.overlaps, report.holders
    );
    for overlap in &report.overlap_details {
        let _ = writeln!(out, "    ✗ {overlap}");
    }
    let _ = writeln!(
        out,
        "  tokens strictly increasing: {} (must be true)",
        report.tokens_strictly_increasing
    );
    for fallen in &report.token_details {
        let _ = writeln!(out, "    ✗ {fallen}");
    }
}

fn sources(out: &mut String, report: &Report) {
    let observations = &report.observations;
    let _ = write!(
        out,
        "
  where the numbers come from
    end of the lease   MGET and PTTL of every lease on all masters, on connections of the observer, {} reads;
                       a majority can be free at the M-th smallest end
    release, active    the replicas' log lines `lease given up` and `lease acquired`, {} lines with microseconds
    who believed what  from `lease acquired` to the earlier of `lease lost` or `lease given up` and the last
                       valid_until known, which is in {} answers of /locks; a replica that was killed or paused
                       counts as believing until then. Two such intervals of one lock that meet are an overlap
    tokens             from the replicas and, apart from that, from the lease values on the masters
    one clock          all of them on the boot-time clock of this machine
",
        observations.masters, observations.log_lines, observations.replicas
    );
}
