//! Web requests from where the suite runs.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// For a connection that should work at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// The body of the answer to a GET.
pub async fn ask(address: &str, port: u16, path: &str) -> Result<String> {
    let body = fetch(address, port, path, PATIENCE).await?;
    Ok(String::from_utf8_lossy(&body).trim().to_owned())
}

/// The body of an answer that may be large.
pub async fn fetch(address: &str, port: u16, path: &str, patience: Duration) -> Result<Vec<u8>> {
    let work = async {
        let mut stream = TcpStream::connect((address, port)).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        match answer.windows(4).position(|end| end == b"\r\n\r\n") {
            Some(head) => anyhow::Ok(answer.split_off(head + 4)),
            None => bail!("no answer: {:?}", String::from_utf8_lossy(&answer)),
        }
    };
    let what = || format!("http://{address}:{port}{path}");
    tokio::time::timeout(patience, work).await.with_context(what)?.with_context(what)
}
