//! Sends one round of questions to the other replicas.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use futures_util::future::join_all;
use tokio::time;

use super::Executor;
use crate::{
    clock,
    controller::sibling_answers::{Asked, Round, is_sibling},
    operator::sibling::{Answer, Question, ask},
};

impl Executor {
    /// Asks the replicas at these addresses about these locks.
    pub(super) fn round(
        &self,
        addresses: Vec<SocketAddr>,
        quorums: Asked,
        patience: Duration,
    ) -> impl Future<Output = Round> + use<> {
        let (cluster, identity) = (self.cluster.uid().to_owned(), self.identity.to_string());
        let question = Question { quorums };
        let transport = self.quorums.transport.clone();
        let known = self.siblings.are_known(clock::now());
        let ready = |address: &SocketAddr| self.siblings.ready_pod(*address).map(str::to_owned);
        let ready: Vec<Option<String>> = addresses.iter().map(ready).collect();
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
            let unanswered: BTreeSet<String> = ready
                .into_iter()
                .zip(&answers)
                .filter_map(|(ready, answer)| ready.filter(|_| answer.is_none()))
                .collect();
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
