//! Sends one round of questions to the other replicas.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use futures_util::future::join_all;
use kube::api::ListParams;
use tokio::time;

use super::Executor;
use crate::{
    clock,
    controller::{
        observe::Observation,
        sibling_answers::{Asked, Round, is_sibling},
        siblings::Pods,
    },
    operator::sibling::{Answer, Question, ask},
    targets::{Change, Origin},
};

/// The most pods that are listed at the end.
const MOST_PODS: u32 = 500;

impl Executor {
    /// Lists the other replicas if the watch does not show them now: the last replica stops what they left.
    pub(super) async fn list_siblings(&mut self, patience: Duration) {
        let sent = clock::now();
        let Some(followed) = self.followed.as_ref().filter(|_| !self.siblings.are_known(sent)) else {
            return;
        };
        let parameters = ListParams::default().labels(&followed.selector).limit(MOST_PODS);
        let api = followed.api(&self.kubernetes.clients.urgent);
        let listed = time::timeout(patience, api.list(&parameters)).await;
        // Without a complete list, a replica may run.
        let Ok(Ok(listed)) = listed else { return };
        if listed.metadata.continue_.is_some_and(|next| !next.is_empty()) {
            return;
        }
        let mut pods = Pods::new(Some(&followed.own));
        let seen = listed.items.into_iter();
        let seen = seen.map(|pod| Change::Seen(pod, Origin::List(sent)));
        for change in seen.chain([Change::Synced]) {
            pods.observe(&Observation::from(change), sent);
        }
        self.siblings = pods;
    }

    /// Asks the replicas at these addresses about these locks.
    pub(super) fn round(
        &self,
        addresses: Vec<SocketAddr>,
        quorums: Asked,
        patience: Duration,
    ) -> impl Future<Output = Round> + use<> {
        let (cluster, identity) = (self.cluster.uid().to_owned(), self.identity.to_string());
        let question = Question {
            identity: identity.clone(),
            quorums,
        };
        let transport = self.quorums.transport.clone();
        let known = self.siblings.are_known(clock::now());
        let pods = self.siblings.clone();
        async move {
            let sent = clock::now();
            let asked = addresses
                .iter()
                .map(|address| time::timeout(patience, ask(&transport, *address, &cluster, &question)));
            let answers: Vec<Option<Answer>> = join_all(asked)
                .await
                .into_iter()
                .map(|answer| answer.ok()?.ok())
                .collect();
            let unanswered = addresses.iter().zip(&answers);
            let unanswered = unanswered.filter(|(_, answer)| answer.is_none());
            let unanswered = unanswered.filter_map(|(address, _)| pods.ready_pod(*address));
            let unanswered: BTreeSet<String> = unanswered.map(str::to_owned).collect();
            let silent = !unanswered.is_empty() || !known;
            let counts = |answer: &Option<Answer>| {
                let answer = answer.as_ref();
                answer.is_some_and(|answer| is_sibling(answer, &cluster, &identity))
            };
            let answered = addresses.into_iter().zip(&answers);
            let answered = answered.filter_map(|(address, answer)| counts(answer).then_some(address));
            let others_ended = known && pods.have_ended_except(&answered.collect());
            let answers = answers.into_iter().flatten().collect();
            Round::new(sent, answers, &cluster, &identity)
                .about(question.quorums, silent)
                .without(unanswered)
                .beside_ended(others_ended)
        }
    }
}
