//! Calls whose answer is a stream.

use crate::connection::Connection;
use crate::domain::Domain;
use crate::error::Error;
use crate::procedures::SCREENSHOT;
use crate::xdr::Decoder;

/// More than an uncompressed screen of 4096 × 2160.
const SCREENSHOT_MAX: usize = 32 * 1024 * 1024;

/// A picture of a guest's screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Screenshot {
    /// Its format, like `image/png` or `image/x-portable-pixmap`.
    pub mime: String,
    /// The picture.
    pub bytes: Vec<u8>,
}

impl Connection {
    /// Takes a picture of the first screen.
    pub async fn screenshot(&self, domain: &Domain) -> Result<Screenshot, Error> {
        let arguments = domain.arguments().u32(0).u32(0);
        let (mime, stream) =
            self.call_for_stream(SCREENSHOT, arguments, |reply| reply.optional(Decoder::string)).await?;
        let bytes = stream.collect(SCREENSHOT_MAX).await?;
        Ok(Screenshot { mime: mime.unwrap_or_else(|| "application/octet-stream".to_owned()), bytes })
    }
}
