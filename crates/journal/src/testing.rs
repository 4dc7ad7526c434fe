//! Journals made by hand.
