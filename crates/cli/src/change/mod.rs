//! What the commands that change an image share: operands, modes, owners, prompts, what `-v` says.

pub mod mode;
