//! Checks that the Redis user of the node agents can read the locks, and cannot write.

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::ResourceExt;

use super::unknown;
use crate::{
    api::{RedisQuorum, redis_quorum::SecretRef},
    inspect::{
        Session,
        cluster::{Cluster, ClusterError, Given},
        doctor::{Check, Level},
    },
    lease::{LockName, Unknown},
    masters::{MastersConfig, PreflightError, ScriptLoading},
};

const NAME: &str = "redis user";
/// The volume of the DaemonSet with the Secret.
const VOLUME: &str = "redis";
/// The first script of a trial that writes. It writes to a separate key, which no other script reads.
const WRITES: &str = "probe";
const LINE: &str = "give the user the line of docs/redis-acl.md, \"The user of the nodes\"";

/// Reads from each master as the agent does, and tries to write.
pub(super) async fn check(
    cluster: &Cluster,
    quorum: &RedisQuorum,
    given: &Given,
    agent: &DaemonSet,
) -> Check {
    let name = quorum.name_any();
    if quorum.spec.auth.is_none() {
        let found = format!(
            "RedisQuorum {name} declares no user: the agents send none, and the default user of the masters may write"
        );
        return Check::but(
            NAME,
            Level::Warning,
            found,
            "see docs/redis-acl.md for a user that only reads",
        );
    }
    let Some(secret) = secret(agent) else {
        let found = format!("RedisQuorum {name} has auth, and the node agents have no Secret");
        let hint = "set fencing.redis.secretName of the chart to a Secret with a user that only reads";
        return Check::but(NAME, Level::Bad, found, hint);
    };
    match open(cluster, quorum, given, (agent, &secret)).await {
        Ok(session) => {
            let check = tried(&session).await;
            session.close().await;
            check
        }
        Err(error) => {
            let hint = "check that the Secret has the keys username and password, and that you may read it";
            unknown(NAME, &error.to_string(), hint)
        }
    }
}

/// Returns the name of the Secret that the pods mount.
fn secret(agent: &DaemonSet) -> Option<String> {
    let spec = agent.spec.as_ref()?.template.spec.as_ref()?;
    let volume = spec
        .volumes
        .iter()
        .flatten()
        .find(|volume| volume.name == VOLUME)?;
    volume.secret.as_ref()?.secret_name.clone()
}

/// Connects to the masters as a node agent does.
async fn open(
    cluster: &Cluster,
    quorum: &RedisQuorum,
    given: &Given,
    (agent, secret): (&DaemonSet, &str),
) -> Result<Session, ClusterError> {
    let reference = SecretRef {
        name: secret.to_owned(),
        namespace: agent.namespace().unwrap_or_default(),
    };
    let mut as_agent = quorum.clone();
    if let Some(auth) = &mut as_agent.spec.auth {
        auth.secret_ref = reference;
    }
    let given = Given {
        tls: given.tls.clone(),
        cluster: given.cluster.clone(),
        ..Given::default()
    };
    let config = MastersConfig {
        scripts: ScriptLoading::ByHash,
        ..cluster.masters_config(&as_agent, &given).await?
    };
    cluster.session_of(&as_agent, config).await
}

async fn tried(session: &Session) -> Check {
    let masters = &session.masters;
    let Ok(lock) = LockName::internal("doctor", "trial") else {
        return unknown(NAME, "the name of the trial is not valid", LINE);
    };
    let round = masters.read_fences(&[masters.lock(&lock)]).await;
    let writes = masters.try_scripts().await;
    let each = masters
        .status()
        .into_iter()
        .zip(round.readings.into_iter().zip(writes));
    let each = each.map(|(master, (read, written))| {
        // A master that refused the user was not asked.
        let refused = master.trouble.filter(Unknown::is_auth);
        let read = read.map(drop).map_err(|reason| refused.unwrap_or(reason));
        (master.name, read, written)
    });
    judge(each)
}

fn judge(masters: impl Iterator<Item = (String, Result<(), Unknown>, Result<(), PreflightError>)>) -> Check {
    let (mut bad, mut open) = (Vec::new(), Vec::new());
    for (name, read, written) in masters {
        match read {
            Err(reason) if reason.is_auth() => bad.push(format!("{name}: it may not read: {reason}")),
            Err(reason) => open.push(format!("{name}: {reason}")),
            Ok(()) => match written {
                Ok(()) => bad.push(format!("{name}: it may write")),
                // Without `eval`, a script that no other user has run cannot be sent.
                Err(error)
                    if (error.reason.is_auth() || error.reason.is_no_script()) && error.script == WRITES => {}
                Err(error) if error.reason.is_auth() => bad.push(format!("{name}: it may write; {error}")),
                Err(error) => open.push(format!("{name}: {error}")),
            },
        }
    }
    if !bad.is_empty() {
        Check::but(NAME, Level::Bad, bad.join("; "), LINE)
    } else if !open.is_empty() {
        unknown(NAME, &open.join("; "), "see the lines of the masters")
    } else {
        Check::good(NAME, "reads the locks at each master, and may not write")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(script: &str, code: &str) -> Result<(), PreflightError> {
        Err(PreflightError {
            script: script.to_owned(),
            commands: String::new(),
            reason: Unknown::server(code, "x"),
        })
    }

    fn judged(read: Result<(), Unknown>, written: Result<(), PreflightError>) -> Level {
        let good = ("m0".to_owned(), Ok(()), refused(WRITES, "NOPERM"));
        let other = ("m1".to_owned(), read, written);
        judge([good, other].into_iter()).level
    }

    #[test]
    fn a_user_that_reads_and_is_refused_its_first_write_only_reads() {
        let noperm = || Err(Unknown::server("NOPERM", "x"));
        assert_eq!(judged(Ok(()), refused(WRITES, "NOPERM")), Level::Good);
        assert_eq!(judged(Ok(()), refused(WRITES, "NOSCRIPT")), Level::Good);
        assert_eq!(judged(Ok(()), Ok(())), Level::Bad);
        assert_eq!(
            judged(Ok(()), refused("grant", "NOPERM")),
            Level::Bad,
            "the first write succeeded"
        );
        assert_eq!(judged(noperm(), refused(WRITES, "NOPERM")), Level::Bad);
        // Neither good nor bad.
        assert_eq!(judged(Err(Unknown::TimedOut(500)), Ok(())), Level::Warning);
        assert_eq!(judged(Ok(()), refused(WRITES, "MISCONF")), Level::Warning);
    }
}
