//! Answers questions of sibling replicas about locks, and sends such questions to them.
//!
//! Every answer is computed from handles on request: it shows the replica's view at that moment. It names no holder,
//! and no lock that the question does not name. The client is written by hand: for one path of this project's own
//! server, an HTTP library would be the larger risk.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    sync::Arc,
};

use axum::{
    Json,
    extract::State as Shared,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time,
};

use super::{
    http::ANSWER,
    state::{InUseQuorum, ProcessState},
};
use crate::{
    clock,
    elector::LockView,
    lease::{BootInstant, LockName, Participation},
    transport::Transport,
};

/// The path at which a replica answers its siblings.
pub(crate) const PATH: &str = "/sibling";
/// The maximum length of an answer; an answer about ten thousand locks has a tenth of it.
const LONGEST: u64 = 16 * 1024 * 1024;

/// The locks that a replica asks about, by quorum.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Question {
    /// The UID of the cluster of the replica that asks.
    pub(crate) cluster: String,
    pub(crate) quorums: BTreeMap<String, BTreeSet<String>>,
}

/// The present view of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) cluster: String,
    pub(crate) identity: String,
    /// The finalizer of the RedisQuorums that locks of the replica name.
    #[serde(default)]
    pub(crate) finalizer: String,
    /// Of the quorums asked about, those that locks of the replica name, even while their masters are unreachable.
    #[serde(default)]
    pub(crate) uses: BTreeSet<String>,
    /// Of the quorums asked about, those in use.
    pub(crate) quorums: BTreeMap<String, QuorumAnswer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QuorumAnswer {
    /// Whether a majority of the masters votes, the elector answers, and the replica is not shutting down.
    pub(crate) majority: bool,
    /// Of the locks asked about, those that the replica contends for or watches.
    pub(crate) locks: BTreeMap<String, LockAnswer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LockAnswer {
    /// Whether the replica acquires the lock when it is free.
    pub(crate) contends: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<LeaseAnswer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeaseAnswer {
    /// Whether the answering replica holds the lease.
    pub(crate) own: bool,
    /// Whether a candidate of the answering replica's cluster holds the lease.
    pub(crate) own_cluster: bool,
    pub(crate) fencing_token: u64,
    /// The time until the lease ends unless it is renewed.
    pub(crate) valid_for_milliseconds: u64,
}

/// Answers a sibling. A replica of another cluster that uses this address by mistake is refused.
pub(crate) async fn answer(
    Shared(state): Shared<Arc<ProcessState>>,
    Json(question): Json<Question>,
) -> Response {
    if question.cluster != state.cluster.uid() {
        return (StatusCode::FORBIDDEN, "another cluster's replica\n").into_response();
    }
    let in_use = state.in_use.load_full();
    let mut quorums = BTreeMap::new();
    for quorum in &in_use.quorums {
        if let Some(locks) = question.quorums.get(&quorum.name) {
            let answer = answer_quorum(quorum, locks, in_use.stopping, state.cluster.uid()).await;
            quorums.insert(quorum.name.clone(), answer);
        }
    }
    let answer = Answer {
        cluster: state.cluster.uid().to_owned(),
        identity: state.identity.to_string(),
        finalizer: in_use.finalizer.clone(),
        uses: in_use.uses(question.quorums.keys()),
        quorums,
    };
    Json(answer).into_response()
}

async fn answer_quorum(
    quorum: &InUseQuorum,
    locks: &BTreeSet<String>,
    stopping: bool,
    cluster: &str,
) -> QuorumAnswer {
    // Standings of an elector that hangs are outdated.
    let answers = matches!(
        time::timeout(ANSWER / 4, quorum.elector.answers()).await,
        Ok(true)
    );
    let majority = quorum.masters.voters() >= quorum.masters.size().majority();
    let now = clock::now();
    let known = |name: &String| {
        let lock = LockName::parse(name).ok()?;
        let standing = quorum.elector.watch(&lock)?;
        let answer = LockAnswer::of(&standing.borrow(), cluster, now);
        Some((name.clone(), answer))
    };
    QuorumAnswer {
        majority: majority && answers && !stopping,
        locks: locks.iter().filter_map(known).collect(),
    }
}

impl LockAnswer {
    fn of(standing: &LockView, cluster: &str, now: BootInstant) -> Self {
        let left = |until: BootInstant| until.left(now).as_millis().try_into().unwrap_or(u64::MAX);
        let own = standing.authority_at(now).map(|authority| LeaseAnswer {
            own: true,
            own_cluster: true,
            fencing_token: authority.token.0,
            valid_for_milliseconds: left(authority.valid_until),
        });
        let seen = || {
            standing.holder_at(now).map(|holder| LeaseAnswer {
                own: false,
                own_cluster: holder.cluster.uid() == cluster,
                fencing_token: holder.token.0,
                valid_for_milliseconds: left(holder.ends),
            })
        };
        Self {
            contends: standing.participation != Participation::Observe,
            lease: own.or_else(seen),
        }
    }
}

/// Asks the replica at this address. The caller limits the time.
///
/// # Errors
///
/// Returns an error if the connection fails, or if the answer is invalid.
pub(crate) async fn ask(
    transport: &Transport,
    address: SocketAddr,
    question: &Question,
) -> io::Result<Answer> {
    let body = serde_json::to_vec(question)?;
    let head = format!(
        "POST {PATH} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = transport.connect_to(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(&[head.as_bytes(), &body].concat()).await?;
    let mut reply = Vec::new();
    stream.take(LONGEST).read_to_end(&mut reply).await?;
    read(&reply)
}

fn read(reply: &[u8]) -> io::Result<Answer> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "not the answer of a sibling");
    let end = reply
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .ok_or_else(odd)?;
    let (head, body) = (&reply[..end], &reply[end + 4..]);
    let first = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let ok = first.split(|byte| *byte == b' ').nth(1) == Some(b"200");
    if !ok {
        return Err(odd());
    }
    Ok(serde_json::from_slice(body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_anything_else_is_an_error() {
        let answer = Answer {
            cluster: "u".into(),
            identity: "replica-1".into(),
            finalizer: "redlock.dev/in-use-all".into(),
            uses: BTreeSet::from(["default".into()]),
            quorums: BTreeMap::from([(
                "default".into(),
                QuorumAnswer {
                    majority: true,
                    locks: BTreeMap::from([(
                        "billing/report".into(),
                        LockAnswer {
                            contends: true,
                            lease: Some(LeaseAnswer {
                                own: true,
                                own_cluster: true,
                                fencing_token: 7,
                                valid_for_milliseconds: 900,
                            }),
                        },
                    )]),
                },
            )]),
        };
        let body = serde_json::to_string(&answer).unwrap();
        let reply = |head: &str| read(format!("{head}\r\n\r\n{body}").as_bytes());
        assert_eq!(reply("HTTP/1.0 200 OK\r\ncontent-length: 9").unwrap(), answer);
        assert!(reply("HTTP/1.0 403 Forbidden").is_err());
        for odd in [
            "",
            "HTTP/1.0 200 OK",
            "HTTP/1.0 200 OK\r\n\r\n",
            "HTTP/1.0 200 OK\r\n\r\n{}",
            "\r\n\r\n{",
        ] {
            assert!(read(odd.as_bytes()).is_err(), "{odd:?}");
        }
    }
}
