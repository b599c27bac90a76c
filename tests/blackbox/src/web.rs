//! Web requests from where the suite runs.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// For a connection that should work at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// The body of the answer to a GET.
pub async fn ask(address: &str, port: u16, path: &str) -> Result<String> {
    let work = async {
        let mut stream = TcpStream::connect((address, port)).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        match answer.split_once("\r\n\r\n") {
            Some((_, body)) => anyhow::Ok(body.trim().to_owned()),
            None => bail!("no answer: {answer:?}"),
        }
    };
    let what = || format!("http://{address}:{port}{path}");
    tokio::time::timeout(PATIENCE, work).await.with_context(what)?.with_context(what)
}
