//! `virtctl port-forward`: ports of a guest as ports of this machine, or one of them as standard input and output.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use crate::cluster::Cluster;
use crate::session::{Session, Socket};
use crate::stream::{self, Ended};
use crate::target::Target;

/// A client of a UDP port that is silent for so long is forgotten.
const SILENCE: Duration = Duration::from_secs(60);
/// The largest datagram.
const DATAGRAM: usize = 64 << 10;

/// Arguments of `port-forward`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// Whose ports: `vm/NAME`, `vmi/NAME` or `vm/NAME/NAMESPACE`.
    #[arg(value_name = "TYPE/NAME[/NAMESPACE]")]
    target: String,
    /// Which ports: `8080`, `8080:80` (here:there) or `udp/5353:53`.
    #[arg(value_name = "[PROTOCOL/]LOCAL[:TARGET]", required = true)]
    ports: Vec<String>,
    /// Connect the port to standard input and output instead of opening one here.
    #[arg(long)]
    stdio: bool,
    /// Address of this machine to open the ports on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    address: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Tcp,
    Udp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Port {
    protocol: Protocol,
    local: u16,
    remote: u16,
}

impl Port {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let (protocol, ports) = text.split_once('/').unwrap_or(("tcp", text));
        let protocol = match protocol.to_lowercase().as_str() {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            other => bail!("unknown protocol: {other}: use tcp or udp"),
        };
        let number = |text: &str| text.parse::<u16>().with_context(|| format!("\"{text}\" is no port: use 1 to 65535"));
        let (local, remote) = match ports.split_once(':') {
            Some(("", remote)) => (number(remote)?, number(remote)?),
            Some((local, remote)) => (number(local)?, number(remote)?),
            None => (number(ports)?, number(ports)?),
        };
        if remote == 0 {
            bail!("invalid port, missing local and/or remote port");
        }
        Ok(Self { protocol, local, remote })
    }
}

/// Where streams to ports are opened.
struct Guest {
    session: Session,
    target: Target,
    namespace: String,
}

impl Guest {
    async fn open(&self, port: Port) -> anyhow::Result<Socket> {
        let protocol = if port.protocol == Protocol::Tcp { "tcp" } else { "udp" };
        let what = format!("portforward/{}/{protocol}", port.remote);
        let path = Session::subresource(&self.namespace, self.target.kind.resource(), &self.target.name, &what);
        let opened = self.session.stream(&path).await;
        opened.with_context(|| {
            format!("can't access {}/{}.{}", self.target.kind.short(), self.target.name, self.namespace)
        })
    }
}

/// `virtctl port-forward`
pub(crate) async fn run(cluster: &Cluster, args: &Args) -> anyhow::Result<()> {
    let target = Target::parse(&args.target, None)?;
    let ports = args.ports.iter().map(|port| Port::parse(port)).collect::<anyhow::Result<Vec<_>>>()?;
    let session = cluster.session().await?;
    let namespace = target.namespace.clone().unwrap_or_else(|| session.namespace.clone());
    let guest = Arc::new(Guest { session, target, namespace });
    if args.stdio {
        let [port] = ports[..] else { bail!("only one port supported when forwarding to stdout") };
        let socket = guest.open(port).await?;
        stream::copy(socket, tokio::io::stdin(), tokio::io::stdout(), stream::everything).await?;
        return Ok(());
    }
    let address = resolve(&args.address).await?;
    for port in ports {
        forward(guest.clone(), address, port).await?;
    }
    tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C")
}

async fn resolve(address: &str) -> anyhow::Result<IpAddr> {
    let mut found = tokio::net::lookup_host((address, 0)).await;
    let first = found.as_mut().ok().and_then(Iterator::next);
    Ok(first.with_context(|| format!("\"{address}\" is no address of this machine"))?.ip())
}

/// Opens the local port and serves it from now on.
async fn forward(guest: Arc<Guest>, address: IpAddr, port: Port) -> anyhow::Result<()> {
    let local = SocketAddr::new(address, port.local);
    let trouble = || format!("cannot open {local}: choose another port, such as 0:{}", port.remote);
    let opened = match port.protocol {
        Protocol::Tcp => {
            let listener = TcpListener::bind(local).await.with_context(trouble)?;
            let opened = listener.local_addr()?;
            tokio::spawn(serve_tcp(guest, listener, port));
            opened
        }
        Protocol::Udp => {
            let socket = UdpSocket::bind(local).await.with_context(trouble)?;
            let opened = socket.local_addr()?;
            tokio::spawn(serve_udp(guest, Arc::new(socket), port));
            opened
        }
    };
    let protocol = if port.protocol == Protocol::Tcp { "tcp" } else { "udp" };
    println!("forwarding {protocol} {opened} to {}", port.remote);
    Ok(())
}

async fn serve_tcp(guest: Arc<Guest>, listener: TcpListener, port: Port) {
    loop {
        match listener.accept().await {
            Ok((connection, _)) => drop(tokio::spawn(tcp(guest.clone(), connection, port))),
            Err(error) => {
                eprintln!("error accepting connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn tcp(guest: Arc<Guest>, mut connection: TcpStream, port: Port) {
    let _ = connection.set_nodelay(true);
    let carried = async {
        let socket = guest.open(port).await?;
        let (input, output) = connection.split();
        stream::copy(socket, input, output, stream::everything).await
    };
    if let Err(error) = carried.await {
        eprintln!("error handling connection for {}: {}", port.local, crate::render(&error));
    }
}

/// One stream for each sender; a datagram is a message.
async fn serve_udp(guest: Arc<Guest>, local: Arc<UdpSocket>, port: Port) {
    let mut peers: HashMap<SocketAddr, mpsc::Sender<Vec<u8>>> = HashMap::new();
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let (length, peer) = match local.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                eprintln!("error receiving on {}: {error}", port.local);
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        peers.retain(|_, peer| !peer.is_closed());
        let sender = peers.entry(peer).or_insert_with(|| {
            let (sender, receiver) = mpsc::channel(64);
            tokio::spawn(udp(guest.clone(), local.clone(), peer, port, receiver));
            sender
        });
        // As on any network, what does not fit is lost.
        let _ = sender.try_send(buffer[..length].to_vec());
    }
}

async fn udp(
    guest: Arc<Guest>,
    local: Arc<UdpSocket>,
    peer: SocketAddr,
    port: Port,
    mut sent: mpsc::Receiver<Vec<u8>>,
) {
    let carried = async {
        let mut socket = guest.open(port).await?;
        loop {
            tokio::select! {
                datagram = sent.recv() => match datagram {
                    Some(datagram) => socket.send(Message::binary(datagram)).await?,
                    None => return anyhow::Ok(Ended::Here),
                },
                message = socket.next() => match message.transpose()? {
                    Some(Message::Binary(datagram)) => drop(local.send_to(&datagram, peer).await?),
                    Some(Message::Close(_)) | None => return Ok(Ended::There(String::new())),
                    Some(_) => {}
                },
                () = tokio::time::sleep(SILENCE) => return Ok(Ended::Here),
            }
        }
    };
    if let Err(error) = carried.await {
        eprintln!("error handling datagrams for {}: {}", port.local, crate::render(&error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_two_ends_and_a_protocol() {
        let port = |protocol, local, remote| Port { protocol, local, remote };
        for (text, expected) in [
            ("8080", port(Protocol::Tcp, 8080, 8080)),
            ("8080:80", port(Protocol::Tcp, 8080, 80)),
            ("0:80", port(Protocol::Tcp, 0, 80)),
            (":80", port(Protocol::Tcp, 80, 80)),
            ("tcp/22", port(Protocol::Tcp, 22, 22)),
            ("UDP/5353:53", port(Protocol::Udp, 5353, 53)),
        ] {
            assert_eq!(Port::parse(text).unwrap(), expected, "{text}");
        }
        for wrong in ["", "0", "http", "70000", "80:", "80:http", "sctp/80", "80:80:80"] {
            assert!(Port::parse(wrong).is_err(), "{wrong}");
        }
    }
}
