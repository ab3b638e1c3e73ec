//! The cluster that is to hold the lock: its UID, and whether an operator there can acquire it.

use std::collections::BTreeSet;

use kube::ResourceExt;

use super::HandOverError;
use crate::{
    api::{RedisQuorum, reporters},
    lease::ClusterId,
};

/// Finds a cluster by NAME or NAME/UID among the clusters that report on the quorum: in its status, which is
/// up to a heartbeat old, and on the masters, if they could be read.
pub(super) fn find(
    quorum: &RedisQuorum,
    reporting: &BTreeSet<ClusterId>,
    to: &str,
    force: bool,
) -> Result<ClusterId, HandOverError> {
    let status = quorum.status.as_ref();
    let mut seen = status.map_or_else(Vec::new, |status| reporters::seen(&status.reporters));
    seen.retain(|known| !reporting.contains(&known.cluster));
    seen.extend(reporting.iter().map(|cluster| reporters::Seen {
        cluster: cluster.clone(),
        alive: true,
    }));
    let whole = to.contains('/');
    let wrong = |why: String| HandOverError::NoCluster {
        to: to.to_owned(),
        why,
    };
    let asked: ClusterId = to.parse().map_err(|error| wrong(format!("{error}")))?;
    let fits = |known: &reporters::Seen| {
        if whole {
            known.cluster == asked
        } else {
            known.cluster.name() == to
        }
    };
    let found: Vec<&reporters::Seen> = seen.iter().filter(|known| fits(known)).collect();
    let alive: Vec<&reporters::Seen> = found.iter().copied().filter(|known| known.alive).collect();
    match (&alive[..], &found[..]) {
        ([one], _) => Ok(one.cluster.clone()),
        ([], [one]) if force => Ok(one.cluster.clone()),
        ([], [one]) => Err(HandOverError::NotAlive(one.cluster.clone())),
        ([], []) if force && whole => Ok(asked),
        ([], []) => Err(HandOverError::UnknownCluster {
            to: to.to_owned(),
            quorum: quorum.name_any(),
            known: names(&seen.iter().collect::<Vec<_>>()),
            way_out: if whole {
                "; --force reserves the lock anyway"
            } else {
                "; --to NAME/UID with --force reserves the lock anyway"
            },
        }),
        _ => Err(HandOverError::SeveralClusters {
            to: to.to_owned(),
            known: names(&found),
        }),
    }
}

fn names(seen: &[&reporters::Seen]) -> String {
    if seen.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<String> = seen.iter().map(|seen| seen.cluster.to_string()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quorum(reporters: &[(&str, &str)]) -> RedisQuorum {
        let reporters: Vec<_> = reporters
            .iter()
            .map(|(cluster, at)| serde_json::json!({"cluster": cluster, "lastSeenTime": at}))
            .collect();
        let object = serde_json::json!({
            "apiVersion": "redlock.dev/v1alpha1", "kind": "RedisQuorum", "metadata": {"name": "q"},
            "spec": {"masters": []}, "status": {"reporters": reporters},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_name_stands_for_the_one_cluster_that_is_alive_under_it() {
        let (now, before) = ("2025-11-21T12:00:00Z", "2025-11-21T11:59:00Z");
        let all = quorum(&[
            ("eu-1/a", now),
            ("us-1/b", now),
            ("us-1/old", before),
            ("ap-1/c", before),
        ]);
        let none = BTreeSet::new();
        let find = |to, force| super::find(&all, &none, to, force).map(|found| found.to_string());
        for (to, found) in [("us-1", "us-1/b"), ("us-1/b", "us-1/b"), ("eu-1", "eu-1/a")] {
            assert_eq!(find(to, false).unwrap(), found);
        }
        for (to, message) in [
            ("ap-1", "no operator of that cluster has reported"),
            ("ap-1/c", "--force"),
            ("us-1/old", "--force"),
            (
                "us-2",
                "the clusters are: eu-1/a, us-1/b, us-1/old, ap-1/c; --to NAME/UID with --force",
            ),
            ("us-2/x", "; --force reserves"),
            ("a|b", "\"a|b\""),
            ("", "empty"),
        ] {
            let error = find(to, false).unwrap_err().to_string();
            assert!(error.contains(message), "{to}: {error}");
        }
        assert_eq!(find("ap-1", true).unwrap(), "ap-1/c");
        assert_eq!(find("us-2/x", true).unwrap(), "us-2/x");
        assert!(find("us-2", true).is_err(), "a name without a UID is no cluster");
        let nowhere = super::find(&quorum(&[]), &none, "us-1", false).unwrap_err();
        assert!(
            nowhere.to_string().contains("the clusters are: none"),
            "{nowhere}"
        );
        // The masters know the clusters that came since the last heartbeat, or are back.
        let reporting = ["ap-1/c", "us-2/new"].map(|cluster| cluster.parse().unwrap());
        for (to, found) in [("us-2", "us-2/new"), ("ap-1", "ap-1/c"), ("eu-1", "eu-1/a")] {
            let cluster = super::find(&all, &reporting.clone().into(), to, false).unwrap();
            assert_eq!(cluster.to_string(), found);
        }
    }
}
