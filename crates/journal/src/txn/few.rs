//! A list that allocates no memory while it is short.

use alloc::vec::Vec;

use obento_base::Result;

/// The first `N` elements are stored inline, the others in a vector.
#[derive(Clone, Debug)]
pub(super) struct Few<T, const N: usize> {
    first: [Option<T>; N],
    len: usize,
    more: Vec<T>,
}

impl<T: Copy, const N: usize> Few<T, N> {
    pub(super) const fn new() -> Self {
        Self { first: [None; N], len: 0, more: Vec::new() }
    }

    /// Reserves space for `count` more elements. Fails with `NoMemory`.
    pub(super) fn reserve(&mut self, count: usize) -> Result<()> {
        let in_place = N.saturating_sub(self.len);
        match count.saturating_sub(in_place) {
            0 => Ok(()),
            beyond => Ok(self.more.try_reserve(beyond)?),
        }
    }

    pub(super) fn push(&mut self, item: T) {
        match self.first.get_mut(self.len) {
            Some(place) => *place = Some(item),
            None => self.more.push(item),
        }
        self.len = self.len.saturating_add(1);
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = T> {
        self.first.iter().take(self.len).flatten().chain(&self.more).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn pushed_elements_are_returned_in_order_inline_and_beyond() {
        let mut few = Few::<u64, 4>::new();
        for n in 0..11 {
            assert_eq!(few.len(), n as usize);
            assert!(few.iter().eq(0..n));
            few.reserve(2).unwrap();
            few.push(n);
        }
        assert_eq!(few.iter().collect::<Vec<_>>(), (0..11).collect::<Vec<_>>());
    }
}
