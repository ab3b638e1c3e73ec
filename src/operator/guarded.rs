//! Controls access to `/metrics` and `/locks`.
//!
//! Owns the HTTP layer in front of both. A [`Reviewer`] decides whether a token is valid.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State as Shared},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use futures_util::future::BoxFuture;

/// The result of the review of a bearer token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Review {
    Allowed,
    /// No user has this token.
    Unauthenticated,
    /// The user of the token, named here, may not read the path.
    Forbidden(String),
    /// The review failed.
    Unavailable,
}

/// Reviews bearer tokens.
pub(crate) trait Reviewer: Send + Sync {
    fn review<'a>(&'a self, token: &'a str, path: &'a str) -> BoxFuture<'a, Review>;
}

/// The longest token that is reviewed, in bytes. Tokens of service accounts have about one thousand, and those of identity
/// providers with many groups less than 16 KiB.
const LONGEST_TOKEN: usize = 16 * 1024;

/// Returns the same routes, served only for tokens that the reviewer allows. Without a reviewer, all clients have access.
pub(super) fn guarded<S: Clone + Send + Sync + 'static>(
    routes: Router<S>,
    reviewer: Option<Arc<dyn Reviewer>>,
) -> Router<S> {
    match reviewer {
        Some(reviewer) => routes.route_layer(middleware::from_fn_with_state(reviewer, check)),
        None => routes,
    }
}

/// Fails closed: a request that was not allowed is refused.
async fn check(Shared(reviewer): Shared<Arc<dyn Reviewer>>, request: Request, next: Next) -> Response {
    let token = match bearer(request.headers()) {
        Ok(token) => token,
        Err(reason) => return unauthenticated(reason),
    };
    let path = request.uri().path().to_owned();
    match reviewer.review(&token, &path).await {
        Review::Allowed => next.run(request).await,
        Review::Unauthenticated => unauthenticated("the API server does not accept this token"),
        Review::Forbidden(user) => {
            let message = format!(
                "user {user} may not get {path}: bind a ClusterRole with nonResourceURLs: [{path}], verbs: [get]\n"
            );
            (StatusCode::FORBIDDEN, message).into_response()
        }
        Review::Unavailable => {
            let message = "the token could not be reviewed by the API server; try again\n";
            (StatusCode::SERVICE_UNAVAILABLE, message).into_response()
        }
    }
}

fn unauthenticated(message: &str) -> Response {
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, challenge, format!("{message}\n")).into_response()
}

/// Returns the token of `Authorization: Bearer TOKEN`, or the reason why it is missing.
fn bearer(headers: &HeaderMap) -> Result<String, &'static str> {
    let value = headers.get(header::AUTHORIZATION);
    let token = value
        .and_then(|value| value.to_str().ok()?.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map_or("", |(_, token)| token.trim());
    match token.len() {
        0 => Err("a bearer token is needed"),
        1..=LONGEST_TOKEN => Ok(token.to_owned()),
        _ => Err("the bearer token is longer than 16 KiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_token_is_read_and_nothing_else() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic abc", None),
            ("", None),
        ] {
            let headers = [(header::AUTHORIZATION, value.parse().unwrap())]
                .into_iter()
                .collect();
            assert_eq!(bearer(&headers).ok().as_deref(), token, "{value:?}");
        }
        assert!(bearer(&HeaderMap::new()).is_err());
    }

    #[test]
    fn a_token_longer_than_16_kib_is_not_reviewed() {
        for (length, accepted) in [
            (LONGEST_TOKEN, true),
            (LONGEST_TOKEN + 1, false),
            (400_000, false),
        ] {
            let value = format!("Bearer {}", "x".repeat(length));
            let headers = [(header::AUTHORIZATION, value.parse().unwrap())]
                .into_iter()
                .collect();
            assert_eq!(bearer(&headers).is_ok(), accepted, "{length}");
        }
    }
}
