use std::sync::LazyLock;

use serde_json::Value;

use super::*;
use crate::schema::Schema;

mod recorded;
