//! The soak of node fencing: the pods are processes that record when they ran, in cgroups that the node agent and the node
//! guardian freeze.

#[path = "fenced/outcome.rs"]
mod outcome;

use std::path::PathBuf;

use fastrand::Rng;

use super::faults::Fault;
use super::pair::{FENCED_LEASE, Pair};
use super::work::Work;
use super::{assert_tokens_increase, controllers, episode, unguarded};
use crate::fixture::{number, seed};
use outcome::{Outcome, print_table};

/// Returns the faults that `REDLOCK_FAULT` names, separated by commas, or all under which pods may stop.
fn kinds(work: Work) -> Vec<Fault> {
    let mut all = [&Fault::CLOSED[..], &Fault::OPEN].concat();
    if work.is_fenced() {
        all.extend(Fault::OF_NODES);
    }
    let Ok(names) = std::env::var("REDLOCK_FAULT") else {
        return all;
    };
    all.extend(Fault::UNNOTICED);
    let named = names.split(',').map(|name| {
        let mut found = all.iter().filter(|fault| format!("{fault:?}") == name);
        *found
            .next()
            .unwrap_or_else(|| panic!("REDLOCK_FAULT={name}: expected one of {all:?}"))
    });
    named.collect()
}

/// `REDLOCK_FENCING=off` runs the same pods without node fencing. Each outcome is appended to the file `REDLOCK_OUTCOMES`,
/// from which the table is printed: so one table can have several runs.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "hours; `make soak-fencing` runs it"]
async fn soak() {
    let off = std::env::var("REDLOCK_FENCING").is_ok_and(|fencing| fencing == "off");
    let work = if off { Work::Unfenced } else { Work::Fenced };
    let seed = seed();
    let kinds = kinds(work);
    let most = number("REDLOCK_FAULTS", 10 * kinds.len());
    let default = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("fencing-{seed}.jsonl"));
    let file = std::env::var_os("REDLOCK_OUTCOMES").map_or(default, PathBuf::from);
    let mut random = Rng::with_seed(seed);
    let mut pair = Pair::new(work, FENCED_LEASE, seed).await;
    let mut held = if work.is_fenced() {
        pair.begin().await
    } else {
        unguarded(&pair).await;
        pair.enforce().await
    };
    let mut found = 0;
    let mut due = Vec::new();
    for count in 0..most {
        if due.is_empty() {
            due.clone_from(&kinds);
            random.shuffle(&mut due);
        }
        let fault = due.pop().expect("a kind of fault");
        let episode = episode(&mut pair, fault, held, &mut random).await;
        held = episode.after;
        if fault == Fault::StopApiServer {
            controllers::follow(&pair.clusters[episode.before.cluster]).await;
        }
        let outcome = Outcome::of(&pair, &episode, seed);
        println!("{count:4}  {outcome:?}");
        if !outcome.overlaps.is_empty() {
            println!("OVERLAP {:#?}\n{}", episode.overlaps(), episode.timeline());
        } else if Fault::UNNOTICED.contains(&fault) && outcome.is_noticed() {
            println!("NOTICED\n{}", episode.timeline());
            pair.keep_logs(&format!("soak-{work:?}-{seed}"));
        }
        outcome.append(&file);
        found += outcome.overlaps.len();
    }
    print_table(&Outcome::read(&file));
    println!("the outcomes are in {}", file.display());
    pair.keep_logs(&format!("soak-{work:?}-{seed}"));
    assert_tokens_increase(&pair);
    assert!(found == 0 || off, "REDLOCK_SEED={seed}: {found} overlaps");
}
