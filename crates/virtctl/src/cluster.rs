//! Which cluster, and as whom: kubectl's connection flags, its rules for finding a kubeconfig, and the local cluster's as the last
//! resort.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::session::Session;

/// What kubectl's flags say about the connection.
#[derive(clap::Args, Clone, Default)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Cluster {
    /// Namespace. Default: the context's.
    #[arg(short, long, global = true)]
    namespace: Option<String>,
    /// Path of the kubeconfig. Default: `$KUBECONFIG`, `~/.kube/config`, or that of the local cluster of this machine.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, global = true)]
    context: Option<String>,
    /// Cluster of the kubeconfig.
    #[arg(long, global = true, hide_short_help = true)]
    cluster: Option<String>,
    /// Address of the API server.
    #[arg(short, long, global = true, hide_short_help = true, value_name = "URL")]
    server: Option<http::Uri>,
    /// Bearer token that says who you are.
    #[arg(long, global = true, hide_short_help = true)]
    token: Option<String>,
    /// User to act as.
    #[arg(long = "as", global = true, hide_short_help = true, value_name = "USER")]
    impersonate: Option<String>,
    /// Group to act as a member of; may be given several times.
    #[arg(long = "as-group", global = true, hide_short_help = true, value_name = "GROUP")]
    groups: Vec<String>,
    /// Uid to act as.
    #[arg(long = "as-uid", global = true, hide_short_help = true, value_name = "UID")]
    uid: Option<String>,
    /// Certificates of authorities that the server may be signed by.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// Certificate that says who you are.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    client_certificate: Option<PathBuf>,
    /// Key of that certificate.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    client_key: Option<PathBuf>,
    /// Name that the server's certificate must have.
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    tls_server_name: Option<String>,
    /// Do not check who the server is.
    #[arg(long, global = true, hide_short_help = true)]
    insecure_skip_tls_verify: bool,
    /// How long one request may take, such as `30s` or `1m`; `0` for ever.
    #[arg(long, global = true, hide_short_help = true, value_name = "TIME", value_parser = crate::time::duration)]
    request_timeout: Option<Duration>,
    /// How much to tell about what is done, 0 to 9.
    #[arg(short = 'v', long = "v", global = true, hide_short_help = true, value_name = "LEVEL", default_value_t = 0)]
    verbosity: u8,
}

impl Cluster {
    /// A connection, made when it is first used.
    pub(crate) async fn session(&self) -> anyhow::Result<Session> {
        let config = self.config().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        Session::new(config, namespace, self.request_timeout, self.verbosity)
    }

    /// The namespace that the flags name.
    pub(crate) fn given_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The flags that make another invocation use the same cluster, as the same user.
    pub(crate) fn same_flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        let mut add = |name: &str, value: Option<String>| flags.extend(value.map(|value| format!("--{name}={value}")));
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| absolute(path).display().to_string());
        add("kubeconfig", path(&self.kubeconfig));
        add("context", self.context.clone());
        add("cluster", self.cluster.clone());
        add("server", self.server.as_ref().map(ToString::to_string));
        add("token", self.token.clone());
        add("as", self.impersonate.clone());
        self.groups.iter().for_each(|group| add("as-group", Some(group.clone())));
        add("as-uid", self.uid.clone());
        add("certificate-authority", path(&self.certificate_authority));
        add("client-certificate", path(&self.client_certificate));
        add("client-key", path(&self.client_key));
        add("tls-server-name", self.tls_server_name.clone());
        add("insecure-skip-tls-verify", self.insecure_skip_tls_verify.then(|| "true".to_owned()));
        flags
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let mut config = self.found().await?;
        // Consoles may be silent for hours.
        (config.read_timeout, config.write_timeout) = (None, None);
        if let Some(server) = &self.server {
            config.cluster_url = server.clone();
        }
        let user = &mut config.auth_info;
        if let Some(token) = &self.token {
            user.token = Some(token.clone().into());
            (user.token_file, user.exec, user.auth_provider) = (None, None, None);
        }
        let text = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        if self.client_certificate.is_some() {
            (user.client_certificate, user.client_certificate_data) = (text(&self.client_certificate), None);
        }
        if self.client_key.is_some() {
            (user.client_key, user.client_key_data) = (text(&self.client_key), None);
        }
        user.impersonate = self.impersonate.clone().or(user.impersonate.take());
        user.impersonate_uid = self.uid.clone().or(user.impersonate_uid.take());
        if !self.groups.is_empty() {
            user.impersonate_groups = Some(self.groups.clone());
        }
        config.root_cert_file = self.certificate_authority.clone().or(config.root_cert_file.take());
        config.tls_server_name = self.tls_server_name.clone().or(config.tls_server_name.take());
        config.accept_invalid_certs |= self.insecure_skip_tls_verify;
        Ok(config)
    }

    /// The configuration that the flags, the environment and the files give.
    async fn found(&self) -> anyhow::Result<Config> {
        if let Some(path) = &self.kubeconfig {
            let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
            return self.chosen(kubeconfig).await;
        }
        if env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty()) {
            return self.chosen(Kubeconfig::read().context("cannot read the files that KUBECONFIG names")?).await;
        }
        let usual = home().map(|home| home.join(".kube/config"));
        for path in [usual, local_cluster()].into_iter().flatten().filter(|path| path.exists()) {
            let kubeconfig = Kubeconfig::read_from(&path).with_context(|| format!("cannot read {}", path.display()))?;
            if self.context.is_some() || kubeconfig.current_context.as_ref().is_some_and(|name| !name.is_empty()) {
                return self.chosen(kubeconfig).await;
            }
        }
        if let Ok(config) = Config::incluster() {
            return Ok(config);
        }
        match &self.server {
            Some(server) => Ok(Config::new(server.clone())),
            None => bail!(
                "there is no kubeconfig: set KUBECONFIG, give --kubeconfig FILE, or start a cluster on this machine with \"ferrovirt up\""
            ),
        }
    }

    async fn chosen(&self, kubeconfig: Kubeconfig) -> anyhow::Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), cluster: self.cluster.clone(), user: None };
        Config::from_custom_kubeconfig(kubeconfig, &options).await.context("the kubeconfig cannot be used")
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The user's home directory.
pub(crate) fn home() -> Option<PathBuf> {
    env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

/// Where `ferrovirt up` writes the kubeconfig of this machine's cluster.
fn local_cluster() -> Option<PathBuf> {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = named("FERROVIRT_STATE").or_else(|| named("XDG_STATE_HOME").map(|base| base.join("ferrovirt")));
    let state = state.or_else(|| home().map(|home| home.join(".local/state/ferrovirt")))?;
    Some(state.join("kubeconfig"))
}
