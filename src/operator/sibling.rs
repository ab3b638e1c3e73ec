//! Answers questions of sibling replicas about locks, and sends such questions to them.
//!
//! A question names the cluster of the replica that asks in the header [`CLUSTER`]. The server compares it before it reads the
//! body: a client that does not know the UID of the cluster is refused at the cost of a head.
//!
//! Every answer is computed from handles on request: it shows the replica's view at that moment. It names no holder,
//! and no lock that the question does not name. The client is written by hand: for one path of this project's own
//! server, an HTTP library would be the larger risk.

mod question;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    io,
    net::SocketAddr,
    sync::Arc,
};

use axum::{
    Json,
    extract::{Request, State as Shared},
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time,
};

pub(crate) use self::question::Question;
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
/// The header with the UID of the cluster of the replica that asks.
const CLUSTER: &str = "redlock-cluster";
/// The maximum length of an answer; an answer about ten thousand locks has a tenth of it.
const LONGEST: u64 = 16 * 1024 * 1024;

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
    /// The age of the last answer of the API server to this replica; `None` for a build that does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) api_contact_age_milliseconds: Option<u64>,
    /// Whether the replica ends; false for a build that does not report it.
    #[serde(default)]
    pub(crate) stopping: bool,
    /// Of the quorums asked about, those in use.
    pub(crate) quorums: BTreeMap<String, QuorumAnswer>,
}

impl Answer {
    /// Adds the answer to a further part of the question.
    fn add(&mut self, other: Self) {
        self.uses.extend(other.uses);
        self.stopping &= other.stopping;
        let ages = self
            .api_contact_age_milliseconds
            .zip(other.api_contact_age_milliseconds);
        self.api_contact_age_milliseconds = ages.map(|(one, other)| one.max(other));
        for (name, answer) in other.quorums {
            match self.quorums.entry(name) {
                Entry::Vacant(entry) => _ = entry.insert(answer),
                Entry::Occupied(mut entry) => {
                    let quorum = entry.get_mut();
                    quorum.majority &= answer.majority;
                    quorum.locks.extend(answer.locks);
                }
            }
        }
    }
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
    /// Whether the replica that asks holds the lease, as the masters show it; false from a replica of an earlier version.
    #[serde(default)]
    pub(crate) of_asker: bool,
    /// The token of the holder. A replica that does not hold the lease reads it from the grant numbers of the masters, of
    /// which one may be greater.
    pub(crate) fencing_token: u64,
    /// The time until the lease ends unless it is renewed.
    pub(crate) valid_for_milliseconds: u64,
}

/// Refuses requests that do not name this cluster, without their body. The UID is no secret: it keeps out replicas of other
/// clusters and clients without access to this one, but does not prove that a replica sent the request.
pub(super) async fn refuse_other_clusters(
    Shared(state): Shared<Arc<ProcessState>>,
    request: Request,
    next: Next,
) -> Response {
    let named = request.headers().get(CLUSTER);
    if named.is_none_or(|named| named.as_bytes() != state.cluster.uid().as_bytes()) {
        return (StatusCode::FORBIDDEN, "another cluster's replica\n").into_response();
    }
    next.run(request).await
}

/// Answers a sibling.
pub(super) async fn answer(
    Shared(state): Shared<Arc<ProcessState>>,
    Json(question): Json<Question>,
) -> Response {
    let in_use = state.in_use.load_full();
    let mut quorums = BTreeMap::new();
    for quorum in &in_use.quorums {
        if let Some(locks) = question.quorums.get(&quorum.name) {
            let answer = answer_quorum(
                quorum,
                locks,
                in_use.stopping,
                (state.cluster.uid(), &question.identity),
            )
            .await;
            quorums.insert(quorum.name.clone(), answer);
        }
    }
    let answer = Answer {
        cluster: state.cluster.uid().to_owned(),
        identity: state.identity.to_string(),
        finalizer: in_use.finalizer.clone(),
        uses: in_use.uses(question.quorums.keys()),
        api_contact_age_milliseconds: in_use.api_server_answered.as_ref().map(|answered| {
            let age = clock::now().since(*answered.borrow());
            u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
        }),
        stopping: in_use.stopping,
        quorums,
    };
    Json(answer).into_response()
}

async fn answer_quorum(
    quorum: &InUseQuorum,
    locks: &BTreeSet<String>,
    stopping: bool,
    asker: (&str, &str),
) -> QuorumAnswer {
    // Standings of an elector that hangs are outdated.
    let answers = matches!(
        time::timeout(ANSWER / 4, quorum.elector.answers()).await,
        Ok(true)
    );
    let majority = quorum.masters.majority_grants();
    let now = clock::now();
    let known = |name: &String| {
        let lock = LockName::parse(name).ok()?;
        let standing = quorum.elector.watch(&lock)?;
        let answer = LockAnswer::of(&standing.borrow(), asker, now);
        Some((name.clone(), answer))
    };
    QuorumAnswer {
        majority: majority && answers && !stopping,
        locks: locks.iter().filter_map(known).collect(),
    }
}

impl LockAnswer {
    fn of(standing: &LockView, (cluster, asker): (&str, &str), now: BootInstant) -> Self {
        let left = |until: BootInstant| until.left(now).as_millis().try_into().unwrap_or(u64::MAX);
        let own = standing.authority_at(now).map(|authority| LeaseAnswer {
            own: true,
            own_cluster: true,
            of_asker: false,
            fencing_token: authority.token.0,
            valid_for_milliseconds: left(authority.valid_until),
        });
        let seen = || {
            standing.holder_at(now).map(|holder| LeaseAnswer {
                own: false,
                own_cluster: holder.cluster.uid() == cluster,
                of_asker: holder.cluster.uid() == cluster && holder.identity == asker,
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

/// Asks the replica of the cluster with the UID `cluster` at this address. A question about many locks is sent in parts, and
/// the answers are put together. The caller limits the time.
///
/// # Errors
///
/// Returns an error if a connection fails, or if an answer is invalid.
pub(crate) async fn ask(
    transport: &Transport,
    address: SocketAddr,
    cluster: &str,
    question: &Question,
) -> io::Result<Answer> {
    let mut whole: Option<Answer> = None;
    for part in question.parts() {
        let answer = ask_part(transport, address, cluster, &part).await?;
        match &mut whole {
            // Another process has taken over the address, whose answer would prove nothing about the first one.
            Some(whole) if whole.identity != answer.identity => return Err(invalid()),
            Some(whole) => whole.add(answer),
            None => whole = Some(answer),
        }
    }
    whole.ok_or_else(invalid)
}

async fn ask_part(
    transport: &Transport,
    address: SocketAddr,
    cluster: &str,
    question: &Question,
) -> io::Result<Answer> {
    let body = serde_json::to_vec(&NamedQuestion { cluster, question })?;
    let head = format!(
        "POST {PATH} HTTP/1.0\r\nHost: {address}\r\n{CLUSTER}: {cluster}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = transport.connect_to(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(&[head.as_bytes(), &body].concat()).await?;
    let mut reply = Vec::new();
    stream.take(LONGEST).read_to_end(&mut reply).await?;
    read(&reply)
}

/// A question as replicas of the previous release read it: they expect the UID of the cluster in the body.
#[derive(Serialize)]
struct NamedQuestion<'a> {
    cluster: &'a str,
    #[serde(flatten)]
    question: &'a Question,
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not the answer of a sibling")
}

fn read(reply: &[u8]) -> io::Result<Answer> {
    let end = reply
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .ok_or_else(invalid)?;
    let (head, body) = (&reply[..end], &reply[end + 4..]);
    let first = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let ok = first.split(|byte| *byte == b' ').nth(1) == Some(b"200");
    if !ok {
        return Err(invalid());
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
            api_contact_age_milliseconds: Some(3),
            stopping: false,
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
                                of_asker: false,
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

    #[test]
    fn replicas_of_other_versions_understand_each_other() {
        let lease = |text: &str| serde_json::from_str::<LeaseAnswer>(text).unwrap();
        let before = r#""own":false,"ownCluster":true,"fencingToken":7,"validForMilliseconds":9"#;
        assert!(!lease(&format!("{{{before}}}")).of_asker);
        assert!(lease(&format!(r#"{{{before},"ofAsker":true,"later":1}}"#)).of_asker);
        let question: Question = serde_json::from_str(r#"{"cluster":"u","quorums":{},"later":1}"#).unwrap();
        assert_eq!(question, Question::default());
    }

    #[test]
    fn a_majority_is_reported_if_each_part_of_the_answer_reports_it() {
        let part = |majority, lock: &str| Answer {
            cluster: "u".into(),
            identity: "replica-1".into(),
            finalizer: String::new(),
            uses: BTreeSet::from(["q".into()]),
            api_contact_age_milliseconds: Some(if majority { 1 } else { 9 }),
            stopping: false,
            quorums: BTreeMap::from([(
                "q".into(),
                QuorumAnswer {
                    majority,
                    locks: BTreeMap::from([(
                        lock.to_owned(),
                        LockAnswer {
                            contends: true,
                            lease: None,
                        },
                    )]),
                },
            )]),
        };
        for (first, second, majority) in [(true, true, true), (true, false, false), (false, true, false)] {
            let mut whole = part(first, "a");
            whole.add(part(second, "b"));
            assert_eq!(whole.quorums["q"].majority, majority);
            assert_eq!(whole.quorums["q"].locks.len(), 2);
            let oldest = if majority { 1 } else { 9 };
            assert_eq!(whole.api_contact_age_milliseconds, Some(oldest));
        }
    }
}
