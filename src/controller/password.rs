//! Creates the Secret with the password of masters that start together with the operator, so that no person has to
//! create it first.
//!
//! The Secret is created once, and never read or changed: an existing Secret stays as it is.

use std::{collections::BTreeMap, future};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::time;

use crate::targets::{Pause, deepest};

/// The length of a password in bytes: 256 bits, too many to guess.
const BYTES: usize = 32;

/// Namespace and name of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewSecret {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Creates the Secret, retrying until it exists; never returns.
pub(super) async fn make(client: Client, wanted: NewSecret) {
    let secrets = Api::<Secret>::namespaced(client, &wanted.namespace);
    let object = format!("Secret {}/{}", wanted.namespace, wanted.name);
    let mut pause = Pause::default();
    loop {
        let reason = match secret(&wanted.name) {
            Ok(secret) => match secrets.create(&PostParams::default(), &secret).await {
                Ok(_) => {
                    tracing::info!(object, "Secret created with a random password");
                    break;
                }
                Err(kube::Error::Api(status)) if status.is_already_exists() => break,
                Err(kube::Error::Api(status)) => status.message.clone(),
                Err(error) => deepest(&error),
            },
            Err(error) => error.to_string(),
        };
        tracing::warn!(object, reason, "Secret cannot be created; retrying");
        if let Some(pause) = pause.next() {
            time::sleep(pause).await;
        }
    }
    future::pending().await
}

fn secret(name: &str) -> Result<Secret, getrandom::Error> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(
            "password".to_owned(),
            ByteString(hex.into_bytes()),
        )])),
        ..Secret::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_passwords_are_the_same() {
        let password = || secret("a").unwrap().data.unwrap().remove("password").unwrap().0;
        let (one, other) = (password(), password());
        assert_eq!(one.len(), 2 * BYTES);
        assert!(one.iter().all(u8::is_ascii_hexdigit));
        assert_ne!(one, other);
    }
}
