//! The expression of `obento find`: GNU find's language over files in an image.
//!
//! [`parse()`] turns the arguments into an [`Expr`](expression::Expr), [`Evaluator`] asks it of one [`Entry`] after
//! another. Walking the tree and opening images is the command's part (`commands/find/`); nothing here touches either,
//! so that the language is tested alone.
//!
//! Source: the GNU findutils 4.9 manual, chapters "Finding Files" and "Actions"; POSIX.1-2017 `find`, `chmod`.

mod compare;
mod evaluate;
mod exec;
mod expression;
mod format;
mod ls;
mod parse;
mod pattern;
mod perm;
mod primary;
mod regexp;
mod stamp;
#[cfg(test)]
mod tests;

pub use evaluate::{Entry, Evaluator, File, Sink, Trouble, Verdict, time_of};
pub use exec::{CopyFailure, Runner};
pub use expression::{Order, Owner, Reference, Stamp};
pub use parse::{Parsed, World, parse, split_start_points};
pub use pattern::{Case, Pattern};
pub use stamp::Zone;
