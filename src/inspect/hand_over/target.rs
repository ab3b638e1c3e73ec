//! The cluster that is to have the lock: its UID, and whether anybody there can take it.

use kube::ResourceExt;

use super::HandOverError;
use crate::{
    api::{RedisQuorum, reporters},
    lease::ClusterId,
};

/// By NAME or NAME/UID, out of the clusters that report on the quorum.
pub(super) fn find(quorum: &RedisQuorum, to: &str, force: bool) -> Result<ClusterId, HandOverError> {
    let status = quorum.status.as_ref();
    let seen = status.map_or_else(Vec::new, |status| reporters::seen(&status.reporters));
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
                "; --force reserves it anyway"
            } else {
                "; --to NAME/UID with --force reserves it anyway"
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
        let find = |to, force| super::find(&all, to, force).map(|found| found.to_string());
        for (to, found) in [("us-1", "us-1/b"), ("us-1/b", "us-1/b"), ("eu-1", "eu-1/a")] {
            assert_eq!(find(to, false).unwrap(), found);
        }
        for (to, said) in [
            ("ap-1", "no operator there has been heard of"),
            ("ap-1/c", "--force"),
            ("us-1/old", "--force"),
            (
                "us-2",
                "there are: eu-1/a, us-1/b, us-1/old, ap-1/c; --to NAME/UID with --force",
            ),
            ("us-2/x", "; --force reserves"),
            ("a|b", "\"a|b\""),
            ("", "empty"),
        ] {
            let error = find(to, false).unwrap_err().to_string();
            assert!(error.contains(said), "{to}: {error}");
        }
        assert_eq!(find("ap-1", true).unwrap(), "ap-1/c");
        assert_eq!(find("us-2/x", true).unwrap(), "us-2/x");
        assert!(find("us-2", true).is_err(), "a name without a UID is no cluster");
        let none = super::find(&quorum(&[]), "us-1", false).unwrap_err().to_string();
        assert!(none.contains("there are: none"), "{none}");
    }
}
