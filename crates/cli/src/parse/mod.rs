//! Parsers of option values that several commands take: each kind of value is read in one place.

pub mod attributes;
pub mod escape;
pub mod image_format;
pub mod mode;
pub mod settings;
pub mod similar;
pub mod size;
pub mod time;
pub mod uuid;
