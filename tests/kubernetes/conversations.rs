//! Plays the conversations that the simulated cluster is held to on a real control plane.

use std::future::poll_fn;
use std::pin::Pin;

use futures_util::{StreamExt, stream};
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http_body::Body as _;
use kube::Client;
use kube::client::Body;
use redlock_world::conversation::{
    CALLER, ConversationFile, ConversationPlayer, ConversationServer, PlayMode, ServerAnswer,
    assert_no_differences, differences,
};
use redlock_world::kubernetes::ApiRequest;

use crate::fixture::{Options, PooledPlane};

struct RealCluster(Client);

impl ConversationServer for RealCluster {
    async fn send(&self, request: ApiRequest) -> ServerAnswer {
        let real = Request::builder()
            .method(request.method)
            .uri(format!("{}?{}", request.path, request.query))
            .header(CONTENT_TYPE, request.content_type)
            .header(ACCEPT, request.accept)
            .header(USER_AGENT, CALLER)
            .body(Body::from(request.body))
            .unwrap();
        let answer = self.0.send(real).await.unwrap();
        let status = answer.status().as_u16();
        let frames = stream::unfold(answer.into_body(), async |mut body| {
            let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await?;
            Some((frame.unwrap().into_data().unwrap_or_default(), body))
        });
        ServerAnswer {
            status,
            body: frames.boxed(),
        }
    }
}

/// Plays all conversations; with `REDLOCK_REGENERATE=1`, their answers become the record.
#[tokio::test]
async fn real_control_plane_answers_as_recorded() {
    let mode = match std::env::var_os("REDLOCK_REGENERATE") {
        Some(_) => PlayMode::Record,
        None => PlayMode::Compare,
    };
    let mut all = Vec::new();
    for has_controllers in [false, true] {
        let plane = PooledPlane::take(Options {
            controller_manager: has_controllers,
            own_kinds_only: true,
            ..Options::default()
        })
        .await;
        let server = RealCluster(plane.admin());
        let mut files = ConversationFile::all();
        files.retain(|file| file.conversation.controllers == has_controllers);
        for mut file in files {
            println!("{}", file.name());
            let answers = ConversationPlayer::new(&server, mode)
                .play(&file.conversation)
                .await;
            match mode {
                PlayMode::Compare => all.extend(differences(&file.name(), &file.conversation, &answers)),
                PlayMode::Record => file.record(answers),
            }
        }
    }
    assert_no_differences(&all);
}
