use std::time::Duration;

use std::collections::BTreeSet;

use super::*;
use crate::{HolderIdentity, LeaseAttempt, LeaseStem, LockName, Nonce};

/// Returns the offsets of `ARGV[stride * i + offset]` in a script, and those of `ARGV[offset]`.
fn arguments(source: &str, stride: usize) -> (BTreeSet<i64>, BTreeSet<i64>) {
    let (mut items, mut head) = (BTreeSet::new(), BTreeSet::new());
    for part in source.split("ARGV[").skip(1) {
        let index = part.split(']').next().unwrap().replace(' ', "");
        if let Ok(number) = index.parse::<i64>() {
            head.insert(number);
        } else if let Some(rest) = index.strip_prefix(&format!("{stride}*i")) {
            items.insert(rest.parse::<i64>().unwrap_or(0));
        } else {
            assert!(index == "i", "ARGV[{index}] with {stride} arguments a lock");
        }
    }
    (head, items)
}

/// `not_after` and the stamp stand before the arguments of each script.
const PREAMBLE: i64 = 2;

#[test]
fn each_layout_has_the_arguments_that_its_script_reads() {
    let with_layout = ALL.iter().filter_map(|script| Some((script, script.layout?)));
    let mut count = 0;
    for (script, layout) in with_layout {
        count += 1;
        // Without the comments, which also name arguments.
        let code = script
            .source
            .lines()
            .filter(|line| !line.trim_start().starts_with("--"));
        let code: String = code.flat_map(|line| [line, "\n"]).collect();
        let (heads, each) = (layout.head.len() as i64, layout.arguments.len() as i64);
        let (head, items) = arguments(&code, layout.arguments.len());
        let expected: BTreeSet<i64> = (1..=PREAMBLE + heads).collect();
        assert!(
            head.is_subset(&expected),
            "{} reads ARGV {head:?} of {expected:?}",
            script.name
        );
        assert!(head.contains(&1) && head.contains(&2), "{}", script.name);
        assert!(
            (PREAMBLE + 1..=PREAMBLE + heads).all(|index| head.contains(&index)),
            "{} does not read all of {:?}: {head:?}",
            script.name,
            layout.head
        );
        if each > 1 {
            // The first lock is i = 1: its arguments begin at head + 3 = stride + offset.
            let first = PREAMBLE + heads + 1 - each;
            let expected: BTreeSet<i64> = (first..first + each).collect();
            assert!(
                items.is_subset(&expected),
                "{} reads {items:?} of {expected:?}",
                script.name
            );
            // The names of a grant are read by the loop that names the marks.
            let looped = usize::from(code.contains("ARGV[i]"));
            assert_eq!(
                items.len() + looped,
                layout.arguments.len(),
                "{} reads {items:?}",
                script.name
            );
        }
    }
    assert_eq!(count, 16, "scripts with a layout");
}

/// The arguments of a call as texts, in their order.
#[derive(Default)]
pub(crate) struct Written(pub(crate) Vec<String>);

impl Arguments for Written {
    fn text(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }

    fn number(&mut self, number: u64) {
        self.0.push(number.to_string());
    }
}

fn attempt(fenced: bool) -> Arc<LeaseAttempt> {
    let cluster = ClusterId::new("a", "b").unwrap();
    let stem = LeaseStem::new(&cluster, &HolderIdentity::parse("c").unwrap(), Nonce(1));
    Arc::new(if fenced {
        LeaseAttempt::fenced(stem, Duration::from_secs(1), cluster)
    } else {
        LeaseAttempt::new(stem, Duration::from_secs(1))
    })
}

fn items(fenced: bool) -> Vec<Item> {
    let (cluster, attempt) = (ClusterId::new("a", "b").unwrap(), attempt(fenced));
    let token = crate::FencingToken(7);
    let lease_duration = Duration::from_secs(1);
    let commands = [
        Command::Acquire {
            attempt: attempt.clone(),
            lease_duration,
        },
        Command::Renew {
            attempt: attempt.clone(),
            token,
            lease_duration,
        },
        Command::Release {
            attempt: attempt.clone(),
        },
        Command::Undo {
            attempt: attempt.clone(),
            publish: true,
        },
        Command::Reserve {
            attempt: attempt.clone(),
            cluster: cluster.clone(),
        },
        Command::Observe,
        Command::Inspect,
        Command::Break {
            longest_lease: lease_duration,
        },
        Command::Mark {
            attempt: attempt.clone(),
            token,
            mark: Mark::Clean,
        },
        Command::Mark {
            attempt: attempt.clone(),
            token,
            mark: Mark::Held {
                delay: lease_duration,
            },
        },
        Command::Claim {
            object: "o".into(),
            slot: 1,
            job: "j".into(),
        },
        Command::Slots { object: "o".into() },
    ];
    let mut items: Vec<Item> = commands.into_iter().map(Item::Command).collect();
    items.push(Item::Confirm {
        attempt: attempt.clone(),
        token,
        granted: vec![(0, 3)],
    });
    items.push(Item::UndoAgain {
        attempt: attempt.clone(),
        publish: false,
        only: 0,
    });
    items.push(Item::ReserveAgain {
        attempt,
        cluster,
        only: 0,
    });
    items
}

#[test]
fn each_command_writes_the_keys_and_arguments_of_its_layout() {
    let keys = Keyspace::new("p");
    for item in items(false).into_iter().chain(items(true)) {
        let lock = keys.lock(&LockName::any("l").unwrap());
        let payload = Payload {
            operation: item.operation(),
            items: vec![(lock.clone(), item.clone()), (lock, item.clone())].into(),
            keys: keys.clone(),
            cluster: "a/b".into(),
            floor: 0,
        };
        let layout = payload.script().layout.unwrap();
        let members = payload.members(0);
        let mut written = Written::default();
        payload.write(&mut written, 5, "stamp", 0, &members);
        let keys = 1 + 2 * layout.keys.len();
        let expected = 1 + keys + 2 + layout.head.len() + 2 * layout.arguments.len();
        assert_eq!(written.0.len(), expected, "{item:?}: {:?}", written.0);
        assert_eq!(written.0[0], keys.to_string());
        assert_eq!(written.0[keys + 1..keys + 3], ["5", "stamp"]);
    }
}

/// Returns the script and the arguments of one lock.
fn written(item: &Item) -> (&'static str, Vec<String>) {
    let keys = Keyspace::new("p");
    let payload = Payload {
        operation: item.operation(),
        items: vec![(keys.lock(&LockName::any("l").unwrap()), item.clone())].into(),
        keys,
        cluster: "a/b".into(),
        floor: 0,
    };
    let mut written = Written::default();
    payload.write(&mut written, 5, "stamp", 0, &[0]);
    let arguments = payload.script().layout.unwrap().arguments.len();
    (
        payload.script().name,
        written.0.split_off(written.0.len() - arguments),
    )
}

#[test]
fn a_lock_without_fencing_has_the_scripts_and_arguments_that_know_no_fencing() {
    let stem = attempt(false).stem.as_str().to_owned();
    let value = format!("{stem}3");
    let found: Vec<_> = items(false).iter().map(written).collect();
    let expected: [(&str, &[&str]); 15] = [
        ("GRANT", &[&stem, "1000", "l"]),
        ("RENEW", &[&stem, "7", "1000"]),
        ("RELEASE", &[&stem, "l"]),
        ("RELEASE", &[&stem, "l"]),
        ("RESERVE", &[&stem, "l", "a/b"]),
        ("OBSERVE", &[]),
        ("OBSERVE", &[]),
        ("BREAK", &[]),
        ("MARK", &[&stem, "l", "7", ""]),
        ("MARK", &[&stem, "l", "7", "1000"]),
        ("CLAIM", &["slot:l/o", "1", "j"]),
        ("SLOTS", &["slot:l/o"]),
        ("CONFIRM", &[&value, "7"]),
        ("RELEASE", &[&stem, ""]),
        ("RESERVE", &[&stem, "l", "a/b"]),
    ];
    let expected: Vec<(&str, Vec<String>)> = expected
        .iter()
        .map(|(name, arguments)| (*name, arguments.iter().map(|text| (*text).to_owned()).collect()))
        .collect();
    assert_eq!(found, expected);
    for name in ["GRANT", "CONFIRM", "RENEW", "RELEASE", "RESERVE", "MARK"] {
        let script = ALL.iter().find(|script| script.name == name).unwrap();
        for word in ["!mark", "closed:", "keep"] {
            assert!(!script.source.contains(word), "{name} knows {word}");
        }
    }
}
