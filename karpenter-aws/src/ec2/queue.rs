//! Messages of SQS.

use serde::{Deserialize, Serialize};

/// A message that was received and is hidden from others for a while.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueMessage {
    /// Its name.
    pub id: String,
    /// What it is deleted by; another each time that it is received.
    pub receipt: String,
    /// What it says; `None` if it has no body.
    pub body: Option<String>,
}
