//! Writing the log.

mod encode;
mod label;
mod recover;
mod ring;
mod writer;

pub use writer::{JournalFeatures, JournalWriter};
