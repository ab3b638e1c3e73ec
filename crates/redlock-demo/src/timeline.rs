//! Draws the timeline of a run as an SVG: a bar for each lease in the colour of its holder, and the faults as marks.
//!
//! Pure: a function of the record of the observer and of the faults that the script applied.

mod drawing;
mod svg;

use std::time::Duration;

use crate::observer::Record;
use drawing::Drawing;
use redlock_core::BootInstant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// SIGKILL of a replica.
    Kill,
    /// SIGTERM to a replica.
    Stop,
    /// SIGSTOP until SIGCONT, of a replica or a master.
    Pause,
    /// A master restarted without its memory, until it is sealed again.
    Empty,
}

/// One fault that the script applied.
#[derive(Clone, Debug)]
pub struct Fault {
    pub kind: FaultKind,
    /// The name of the replica or master.
    pub of: String,
    pub at: BootInstant,
    /// The end of a fault that lasts; a run that fails early may not have reached it.
    pub until: Option<BootInstant>,
}

/// The limits and names of the drawing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub started: BootInstant,
    pub took: Duration,
    pub masters: &'a [String],
    pub seed: u64,
    pub lease_seconds: u64,
}

/// Returns the SVG of a run.
pub(crate) fn svg(record: &Record, faults: &[Fault], frame: &Frame<'_>) -> String {
    let mut drawing = Drawing::new(record, frame);
    drawing.axis();
    drawing.rows();
    for fault in faults {
        drawing.guide(fault);
    }
    for claim in record.claims.all() {
        drawing.lease(claim, faults);
    }
    for fault in faults {
        drawing.fault(fault);
    }
    drawing.legend();
    drawing.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Incarnation;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(1_000_000_000_000 + seconds * 1_000_000_000)
    }

    fn record(locks: &[&str], held: &[(&str, &str, u64, u64)]) -> Record {
        let locks: Vec<String> = locks.iter().map(|lock| (*lock).to_owned()).collect();
        let mut record = Record::new(&locks, 1);
        for (token, (lock, name, from, to)) in (1..).zip(held) {
            let who = Incarnation {
                name: (*name).to_owned(),
                pid: 1,
            };
            record.claims.acquired(&who, lock, token, at(*from), at(*to));
        }
        record
    }

    fn fault(kind: FaultKind, of: &str, from: u64, until: Option<u64>) -> Fault {
        Fault {
            kind,
            of: of.to_owned(),
            at: at(from),
            until: until.map(at),
        }
    }

    fn drawn(record: &Record, faults: &[Fault]) -> String {
        let masters = ["m0".to_owned()];
        let frame = Frame {
            started: at(0),
            took: Duration::from_secs(40),
            masters: &masters,
            seed: 7,
            lease_seconds: 3,
        };
        svg(record, faults, &frame)
    }

    fn count(text: &str, part: &str) -> usize {
        text.matches(part).count()
    }

    /// Checks that elements are closed in order, and that every `&` begins an entity.
    fn well_formed(text: &str) -> Result<(), String> {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = text;
        while let Some((words, after)) = rest.split_once('<') {
            let entities = ["amp;", "lt;", "gt;", "quot;", "apos;"];
            if let Some(bare) = words
                .split('&')
                .skip(1)
                .find(|word| !entities.iter().any(|entity| word.starts_with(entity)))
            {
                return Err(format!("a bare & before {bare:?}"));
            }
            let (tag, next) = after.split_once('>').ok_or("a tag without an end")?;
            let name = tag.split_whitespace().next().unwrap_or_default();
            match name.strip_prefix('/') {
                Some(name) if open.pop() == Some(name) => {}
                Some(name) => return Err(format!("</{name}> closes {open:?}")),
                None if tag.ends_with('/') => {}
                None => open.push(name),
            }
            if !count(tag, "\"").is_multiple_of(2) {
                return Err(format!("an attribute of <{tag}> is not closed"));
            }
            rest = next;
        }
        if open.is_empty() {
            Ok(())
        } else {
            Err(format!("not closed: {open:?}"))
        }
    }

    #[test]
    fn each_lease_is_one_bar_in_the_row_of_its_lock() {
        let held = [("a", "r1", 1, 10), ("a", "r2", 13, 20), ("b", "r1", 2, 9)];
        let text = drawn(&record(&["a", "b"], &held), &[]);
        well_formed(&text).unwrap();
        assert_eq!(count(&text, "class=\"lease "), 3, "{text}");
        assert!(
            text.contains("<title>a: r2 from 13.0 s to 20.0 s, token 2</title>"),
            "{text}"
        );
        assert_eq!(
            count(&text, "class=\"lease h1\""),
            1,
            "r2 has a colour of its own: {text}"
        );
    }

    #[test]
    fn each_fault_is_a_mark_and_a_killed_holder_leaves_a_faded_end() {
        let faults = [
            fault(FaultKind::Kill, "r1", 8, None),
            fault(FaultKind::Stop, "r1", 20, None),
            fault(FaultKind::Pause, "m0", 22, Some(25)),
            fault(FaultKind::Empty, "m0", 26, None),
        ];
        let text = drawn(&record(&["a"], &[("a", "r1", 1, 10)]), &faults);
        well_formed(&text).unwrap();
        for mark in ["mark kill", "mark stop", "mark pause", "mark empty"] {
            assert_eq!(count(&text, &format!("class=\"{mark}\"")), 1, "{mark}: {text}");
        }
        assert_eq!(count(&text, "class=\"rest lost\""), 1, "{text}");
        assert!(text.contains("<title>kill -9 r1 at 8.0 s</title>"), "{text}");
        assert!(
            text.contains("<title>SIGSTOP m0 from 22.0 s to 25.0 s</title>"),
            "{text}"
        );
    }

    #[test]
    fn names_are_escaped() {
        let text = drawn(
            &record(&["<a> & \"b\""], &[("<a> & \"b\"", "r'1\u{1}", 1, 10)]),
            &[fault(FaultKind::Kill, "r'1\u{1}", 8, None)],
        );
        well_formed(&text).unwrap();
        assert!(text.contains("&lt;a&gt; &amp; &quot;b&quot;"), "{text}");
        assert!(text.contains("r&apos;1\u{fffd}"), "{text}");
    }

    #[test]
    fn a_run_without_leases_and_without_time_is_a_picture() {
        let masters = [];
        let frame = Frame {
            started: at(0),
            took: Duration::ZERO,
            masters: &masters,
            seed: 7,
            lease_seconds: 3,
        };
        let text = svg(&record(&["a"], &[]), &[], &frame);
        well_formed(&text).unwrap();
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
