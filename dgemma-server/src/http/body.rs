//! Reading a request body under a limit.
//!
//! A client that sends too much mostly reads the reply only after it has sent everything. So the rest is read and thrown
//! away for a while before the refusal goes out: closing at once would lose the reply on the way.

use std::error::Error as _;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;

use crate::error::Error;

/// How long and how much of an oversized body is read before the refusal.
const DISCARD_TIME: Duration = Duration::from_secs(5);
const DISCARD_BYTES: usize = 64 << 20;

/// The whole body: at most so many bytes, within so much time.
pub(super) async fn read(body: Body, limit_bytes: usize, limit: Duration) -> Result<Vec<u8>, Error> {
    let slow = |_| Error::SlowBody { seconds: limit.as_secs_f64() };
    tokio::time::timeout(limit, collect(body, limit_bytes)).await.map_err(slow)?
}

async fn collect(mut body: Body, limit_bytes: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::BodyCut {
            reason: error.source().map_or_else(|| error.to_string(), ToString::to_string),
        })?;
        if let Some(data) = frame.data_ref() {
            if bytes.len() + data.len() > limit_bytes {
                discard(body).await;
                return Err(Error::BodyTooLarge { limit_bytes });
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes)
}

async fn discard(mut body: Body) {
    let all = async {
        let mut seen = 0;
        while let Some(Ok(frame)) = body.frame().await {
            seen += frame.data_ref().map_or(0, Bytes::len);
            if seen > DISCARD_BYTES {
                break;
            }
        }
    };
    // Past the time the reply goes out as it may.
    let _ = tokio::time::timeout(DISCARD_TIME, all).await;
}
