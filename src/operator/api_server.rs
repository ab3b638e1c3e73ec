//! The way to the API server, as kubectl finds it: the files of KUBECONFIG, and the proxy of the kubeconfig or of the environment.
//!
//! `kube` compares NO_PROXY with the url of the proxy, and refuses lists that kubectl accepts, so the proxy is chosen here.

mod proxy;

use std::{
    env,
    ffi::OsStr,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use kube::{
    Config,
    config::{Cluster, Context, ExecAuthCluster, Kubeconfig, KubeconfigError},
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use thiserror::Error;

pub(crate) use self::proxy::ProxyError;
use super::given::given;
use crate::masters::redact;

/// The reason why no client of the API server can be configured.
#[derive(Debug, Error)]
pub(crate) enum ApiServerError {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    #[error("cluster {cluster:?}: the data of its certificate authority is not a certificate in PEM format")]
    Authority { cluster: String },
}

/// Reads the kubeconfig: this file, else the files that KUBECONFIG names, else `~/.kube/config`.
///
/// # Errors
/// Returns an error if a file cannot be read. As for kubectl, only one of the files of KUBECONFIG has to exist.
pub(crate) fn read_kubeconfig(file: Option<&Path>) -> Result<Kubeconfig, KubeconfigError> {
    let files = env::var_os("KUBECONFIG")
        .map(|value| files(&value))
        .unwrap_or_default();
    match (file, files.is_empty()) {
        (Some(file), _) => Kubeconfig::read_from(file),
        (None, false) => merged(&files),
        (None, true) => {
            let home = env::home_dir().ok_or(KubeconfigError::FindPath)?;
            Kubeconfig::read_from(home.join(".kube/config"))
        }
    }
}

fn files(value: &OsStr) -> Vec<PathBuf> {
    let is_named = |path: &PathBuf| path.to_str().is_none_or(|path| given(path).is_some());
    env::split_paths(value).filter(is_named).collect()
}

fn merged(files: &[PathBuf]) -> Result<Kubeconfig, KubeconfigError> {
    let mut whole: Option<Kubeconfig> = None;
    let mut missing = None;
    for file in files {
        match Kubeconfig::read_from(file) {
            Ok(mut next) => {
                next.current_context = present(next.current_context);
                whole = Some(match whole {
                    Some(whole) => whole.merge(next)?,
                    None => next,
                });
            }
            Err(KubeconfigError::ReadConfig(cause, path)) if cause.kind() == ErrorKind::NotFound => {
                missing.get_or_insert(KubeconfigError::ReadConfig(cause, path));
            }
            Err(error) => return Err(error),
        }
    }
    whole.ok_or_else(|| missing.unwrap_or(KubeconfigError::FindPath))
}

/// Reports whether an error of [`read_kubeconfig`] without a file means that there is no kubeconfig: KUBECONFIG names no file,
/// and `~/.kube/config` is missing. A kubeconfig that cannot be used must not send the requests to another cluster, that of the
/// pod.
pub(crate) fn no_kubeconfig(error: &KubeconfigError) -> bool {
    let is_named = env::var_os("KUBECONFIG").is_some_and(|value| !files(&value).is_empty());
    !is_named && is_missing(error)
}

fn is_missing(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        // As with HOME=/dev/null.
        KubeconfigError::ReadConfig(cause, _) => {
            matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        }
        _ => false,
    }
}

/// Returns the configuration of a client from the kubeconfig, or otherwise from the ServiceAccount of the pod.
///
/// # Errors
/// Returns the error of the kubeconfig, also where no kubeconfig exists and this process is in no pod.
pub(crate) fn infer() -> Result<Config, ApiServerError> {
    let mut config = match read_kubeconfig(None) {
        Ok(kubeconfig) => configure(kubeconfig, None)?,
        Err(error) if no_kubeconfig(&error) => Config::incluster().map_err(|_| error)?,
        Err(error) => return Err(error.into()),
    };
    config.apply_debug_overrides();
    Ok(config)
}

/// Returns the configuration of a client for this context of a kubeconfig, or for its current context.
///
/// # Errors
/// Returns an error if the kubeconfig has no such context, or names a cluster, a file or a proxy that cannot be used.
pub(crate) fn configure(kubeconfig: Kubeconfig, context: Option<&str>) -> Result<Config, ApiServerError> {
    let name = context
        .map(str::to_owned)
        .or_else(|| present(kubeconfig.current_context.clone()));
    let name = name.ok_or(KubeconfigError::CurrentContextNotSet)?;
    let (context, cluster) = entries(&kubeconfig, name)?;
    let server = cluster
        .server
        .as_ref()
        .ok_or(KubeconfigError::MissingClusterUrl)?;
    let server: http::Uri = server.parse().map_err(KubeconfigError::ParseClusterUrl)?;
    let proxy = proxy::choose(&server, cluster.proxy_url.as_deref(), |name| env::var(name).ok())?;

    let mut config = Config::new(server);
    config.root_cert = authority(&context.cluster, &cluster)?;
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or_default();
    config.disable_compression = cluster.disable_compression.unwrap_or_default();
    config.tls_server_name.clone_from(&cluster.tls_server_name);
    if let Some(proxy) = proxy {
        let shown = redact(&proxy.url.to_string());
        tracing::debug!(proxy = %shown, setting = proxy.setting, "proxy to the API server");
        config.proxy_url = Some(proxy.url);
    }
    if let Some(namespace) = context.namespace {
        config.default_namespace = namespace;
    }
    let user = context.user.as_ref();
    let users = kubeconfig.auth_infos.into_iter();
    // As for kubectl, a user that does not exist has no credentials.
    let user = users
        .filter(|known| Some(&known.name) == user)
        .find_map(|known| known.auth_info);
    config.auth_info = user.map(without_empty).unwrap_or_default();
    if let Some(exec) = &mut config.auth_info.exec
        && exec.provide_cluster_info
    {
        exec.cluster = Some(ExecAuthCluster::try_from(&cluster)?);
    }
    Ok(config)
}

/// Returns the context of this name, and its cluster.
fn entries(kubeconfig: &Kubeconfig, name: String) -> Result<(Context, Cluster), KubeconfigError> {
    let context = kubeconfig.contexts.iter().find(|known| known.name == name);
    let context = context.and_then(|known| known.context.clone());
    let context = without_empty(context.ok_or(KubeconfigError::LoadContext(name))?);
    let cluster = kubeconfig
        .clusters
        .iter()
        .find(|known| known.name == context.cluster);
    let cluster = cluster.and_then(|known| known.cluster.clone());
    let cluster = cluster.ok_or_else(|| KubeconfigError::LoadClusterOfContext(context.cluster.clone()))?;
    Ok((context, without_empty(cluster)))
}

/// Returns the certificates of the authority; `None` for those of the system.
fn authority(name: &str, cluster: &Cluster) -> Result<Option<Vec<Vec<u8>>>, ApiServerError> {
    let Some(pem) = ExecAuthCluster::try_from(cluster)?.certificate_authority_data else {
        return Ok(None);
    };
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => {
            Ok(Some(certificates.into_iter().map(|der| der.to_vec()).collect()))
        }
        _ => Err(ApiServerError::Authority {
            cluster: name.to_owned(),
        }),
    }
}

/// Returns an entry of a kubeconfig without its texts that are empty: as for kubectl, these count as absent.
fn without_empty<T: Clone + Serialize + DeserializeOwned>(entry: T) -> T {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(&entry) else {
        return entry;
    };
    fields.retain(|_, value| value.as_str().is_none_or(|text| given(text).is_some()));
    serde_json::from_value(Value::Object(fields)).unwrap_or(entry)
}

fn present(text: Option<String>) -> Option<String> {
    text.filter(|text| given(text).is_some())
}

/// Returns an error and its causes, each once: wrappers repeat the error that they wrap.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let message = cause.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
