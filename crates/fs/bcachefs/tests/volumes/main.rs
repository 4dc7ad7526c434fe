//! Volumes of bcachefs-tools, and of our own writer.

mod common;
mod conformance;
mod damaged;
mod features;
mod images;
mod recipe;
