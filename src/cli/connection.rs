//! The flags that name the masters and the identity for connections, the same for every command.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{
    Exit, Failure,
    empty::{is_set, variable},
};
use crate::{
    api::validate::check_key_prefix,
    lease::{ClusterId, identity::IdentityError},
    masters::{ConfigError, Credentials, MastersConfig, Secret, Tls},
    operator::{given::given, masters_config},
    standalone::manifests::load_quorum,
};

const MASTERS: &str = "REDLOCK_MASTERS";

/// The credentials and the cluster for connections to the masters.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArgs {
    /// ACL user of the masters.
    #[arg(long, env = "REDLOCK_USERNAME")]
    pub username: Option<String>,
    /// File with the password of the masters; the variable REDLOCK_PASSWORD holds the password itself.
    #[arg(long, env = "REDLOCK_PASSWORD_FILE", value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// PEM file of the authority that signed the masters' certificates, for rediss:// urls.
    #[arg(long, env = "REDLOCK_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// PEM file of the client certificate.
    #[arg(long, env = "REDLOCK_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file of the client's key.
    #[arg(long, env = "REDLOCK_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Own cluster, NAME or NAME/UID.
    #[arg(long, env = "REDLOCK_CLUSTER", default_value = "local/local", value_parser = cluster)]
    pub cluster: ClusterId,
}

/// The masters of one quorum.
#[derive(Args, Clone, Debug)]
pub struct QuorumArgs {
    /// Urls of all masters, separated by commas; they are called m0, m1, … Without --masters and --config, those of the
    /// variable REDLOCK_MASTERS.
    // Not by `env`: an exported variable, which the user did not type, would then conflict with --config.
    #[arg(long, value_name = "URL,…", value_delimiter = ',')]
    pub masters: Vec<String>,
    /// A RedisQuorum manifest instead of urls.
    #[arg(long, value_name = "FILE", conflicts_with = "masters")]
    pub config: Option<PathBuf>,
    /// Prefix of the keys on the masters; a RedisQuorum has its own.
    #[arg(
        long,
        env = "REDLOCK_KEY_PREFIX",
        value_name = "PREFIX",
        default_value = "redlock",
        value_parser = key_prefix,
        conflicts_with = "config"
    )]
    pub key_prefix: String,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

fn cluster(text: &str) -> Result<ClusterId, String> {
    let text = given(text).unwrap_or_default();
    text.parse().map_err(|error: IdentityError| error.to_string())
}

fn key_prefix(text: &str) -> Result<String, String> {
    check_key_prefix(text)
        .map(|()| text.to_owned())
        .map_err(|reason| format!("it {reason}"))
}

/// Returns the text of a file without the white space around it, or `None` if it is empty.
fn read(flag: &str, path: &Path) -> Result<Option<String>, Failure> {
    let failure =
        |reason: String| Failure::new(Exit::Config, format!("--{flag} {}: {reason}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| failure(format!("cannot be read: {error}")))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| failure("is not text in UTF-8".to_owned()))?;
    Ok(given(text).map(str::to_owned))
}

fn lacks(empty: &str, other: &str) -> Failure {
    let message =
        format!("--{empty}: the file is empty, and that of --{other} is not: give both, or neither");
    Failure::new(Exit::Config, message)
}

impl ConnectionArgs {
    /// Returns the name of the cluster, for a process that reads the UID from the API server.
    ///
    /// # Errors
    /// Returns an error if a UID is given.
    pub(super) fn name_of_the_cluster(&self) -> Result<String, Failure> {
        let cluster = &self.cluster;
        if cluster.uid() == cluster.name() {
            return Ok(cluster.name().to_owned());
        }
        let message = format!(
            "--cluster {cluster}: in a cluster the UID is that of its kube-system namespace; give --cluster {}",
            cluster.name()
        );
        Err(Failure::new(Exit::Config, message))
    }

    /// Reads the user, and the password from the file or the environment.
    ///
    /// # Errors
    /// Returns an error if a file or variable cannot be read, or a user is given without a password.
    pub fn credentials(&self) -> Result<Credentials, Failure> {
        let username = self.username.as_deref().and_then(given);
        let password = match &self.password_file {
            Some(path) => read("password-file", path)?,
            None => variable("REDLOCK_PASSWORD")?,
        };
        if let Some(username) = username.filter(|_| password.is_none()) {
            // Without a password, the client would not send the user, and the server would use its default user.
            let reason = match &self.password_file {
                Some(path) => format!("--password-file {} is empty: write the password", path.display()),
                None => "no password is given: add --password-file or REDLOCK_PASSWORD".to_owned(),
            };
            let message = format!("--username {username}: {reason} (any text for a user without one)");
            return Err(Failure::new(Exit::Config, message));
        }
        Ok(Credentials {
            username: username.map(str::to_owned),
            password: password.map(Secret::new),
            ..Credentials::default()
        })
    }

    /// Reads the PEM files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read.
    pub fn tls(&self) -> Result<Tls, Failure> {
        let file = |flag, path: &Option<PathBuf>| match path {
            Some(path) => read(flag, path).map(|text| text.map(Secret::new)),
            None => Ok(None),
        };
        let client = match (file("tls-cert", &self.tls_cert)?, file("tls-key", &self.tls_key)?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (None, Some(_)) => return Err(lacks("tls-cert", "tls-key")),
            (Some(_), None) => return Err(lacks("tls-key", "tls-cert")),
        };
        Ok(Tls {
            ca: file("tls-ca", &self.tls_ca)?,
            client,
            ..Tls::default()
        })
    }
}

impl QuorumArgs {
    /// Reports whether flags or REDLOCK_MASTERS name the masters.
    #[must_use]
    pub fn named(&self) -> bool {
        !self.masters.is_empty() || self.config.is_some() || is_set(MASTERS)
    }

    /// Returns the masters that the flags or the manifest name. With bare urls, the longest lease and T_acquire are the
    /// defaults until the stored fingerprint is adopted.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or a manifest is invalid.
    pub fn masters_config(&self) -> Result<MastersConfig, Failure> {
        self.named_masters_config().map(|(_, config)| config)
    }

    /// Returns the same masters, with the name of the quorum. Bare urls have no name.
    ///
    /// # Errors
    /// Returns an error as [`Self::masters_config`] does.
    pub(super) fn named_masters_config(&self) -> Result<(Option<String>, MastersConfig), Failure> {
        let (credentials, tls) = (self.connection.credentials()?, self.connection.tls()?);
        let cluster = self.connection.cluster.clone();
        if let Some(file) = &self.config {
            let plan = load_quorum(file).map_err(|e| Failure::caused(Exit::Config, &e))?;
            let config = masters_config(&plan, (credentials, tls), cluster, false);
            return Ok((Some(plan.name), config));
        }
        let exported = variable(MASTERS)?;
        let listed: Vec<&str> = match (&self.masters[..], &exported) {
            ([], None) => {
                let needed =
                    "no masters given: give --masters URL,… or --config FILE, or set REDLOCK_MASTERS";
                return Err(Failure::new(Exit::Usage, needed));
            }
            ([], Some(exported)) => exported.split(',').collect(),
            (flags, _) => flags.iter().map(String::as_str).collect(),
        };
        let urls = listed.into_iter().filter_map(given);
        let config = MastersConfig {
            key_prefix: self.key_prefix.clone(),
            credentials,
            tls,
            cluster,
            reseal: false,
            ..MastersConfig::new(urls)
        };
        let source = if self.masters.is_empty() {
            MASTERS
        } else {
            "--masters"
        };
        let wrong = |error: ConfigError| Failure::new(Exit::Config, format!("{source}: {error}"));
        config.check_masters().map_err(wrong)?;
        Ok((None, config))
    }
}
