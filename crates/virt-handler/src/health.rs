//! Whether the handler lives (`/healthz`) and whether others can reach it (`/readyz`), for the kubelet that keeps it running.
//!
//! A handler that cannot reach the API server is not restarted for that: nothing would get better, and its guests go on either way.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::peers::Identities;

/// Answers for as long as it is polled.
pub async fn serve(listener: TcpListener, identities: Identities) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a probe's connection");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let identities = identities.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let answer = answer(request.uri().path(), &identities);
            async move { Ok::<_, Infallible>(answer) }
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        tokio::spawn(builder.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service));
    }
}

fn answer(path: &str, identities: &Identities) -> Response<Full<Bytes>> {
    let (code, text) = match (path, identities.get()) {
        ("/healthz", _) | ("/readyz", Ok(_)) => (StatusCode::OK, "ok".to_owned()),
        ("/readyz", Err(error)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}; virt-operator gives it one")),
        _ => (StatusCode::NOT_FOUND, "ask for /healthz or /readyz".to_owned()),
    };
    let mut answer = Response::new(Full::from(text));
    *answer.status_mut() = code;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_without_a_certificate_lives_and_is_not_ready() {
        let nobody = Identities::default();
        let code = |path| answer(path, &nobody).status().as_u16();
        assert_eq!(["/healthz", "/readyz", "/"].map(code), [200, 503, 404]);
    }
}
