//! Continue tokens of lists, which clients can make up.
//!
//! Input: what a token says, before base64; a second run takes the input as the token itself.
#![no_main]

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use ferrovirt_fuzz::WORLD;
use http::{Request, StatusCode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let encoded = URL_SAFE_NO_PAD.encode(input);
    let raw: String = input.iter().map(|byte| format!("%{byte:02x}")).collect();
    for token in [encoded, raw] {
        for path in ["/api/v1/configmaps", "/api/v1/namespaces/kube-system/configmaps", "/api/v1/namespaces"] {
            let request = Request::get(format!("{path}?limit=1&continue={token}")).body(Bytes::new());
            let Ok(request) = request else { return };
            let status = WORLD.ask(request);
            let expected = matches!(
                status,
                StatusCode::OK | StatusCode::BAD_REQUEST | StatusCode::GONE | StatusCode::GATEWAY_TIMEOUT
            );
            assert!(expected, "{path}: {status}");
        }
    }
});
