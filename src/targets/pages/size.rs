//! Decides how many objects a page may have. Pure.

/// The number of objects in the first page of a list: its objects may be of any size.
const FIRST: u32 = 16;
const MOST: u32 = 500;
/// A page may have this many times as many objects as the one before it: the objects of the next page may be larger.
const GROWTH: u32 = 4;
/// The length of a page that is aimed at, in bytes.
const AIM: usize = 512 << 10;

/// The number of objects to request in the next page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageSize(u32);

impl Default for PageSize {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl PageSize {
    pub(super) const fn objects(self) -> u32 {
        self.0
    }

    /// Reports whether the page has one object, and cannot be smaller.
    pub(super) const fn is_least(self) -> bool {
        self.0 == 1
    }

    /// Continues after a page of this many objects and bytes.
    pub(super) fn fit(&mut self, objects: usize, bytes: usize) {
        let each = bytes.div_ceil(objects.max(1)).max(1);
        let fitting = u32::try_from(AIM / each).unwrap_or(MOST);
        self.0 = fitting.clamp(1, MOST.min(self.0.saturating_mul(GROWTH)));
    }

    /// Continues after a page that was too long.
    pub(super) fn shrink(&mut self) {
        self.0 = (self.0 / GROWTH).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_follows_the_objects_of_the_last_page() {
        let mut size = PageSize::default();
        let mut after = |objects: usize, each: usize| {
            size.fit(objects, objects * each);
            size.objects()
        };
        assert_eq!(after(16, 1_000), 64, "it grows step by step");
        assert_eq!(after(64, 1_000), 256);
        assert_eq!(after(256, 1_000), MOST);
        assert_eq!(after(500, 10_000), 52);
        assert_eq!(after(52, 1_500_000), 1);
        assert_eq!(after(1, 100), 4);
        assert_eq!(after(0, 0), 16, "a page may be empty");
    }

    #[test]
    fn page_that_was_too_long_is_a_quarter_and_at_last_one_object() {
        let mut size = PageSize(500);
        let shrunk = std::iter::repeat_with(|| {
            size.shrink();
            size.objects()
        });
        assert_eq!(shrunk.take(6).collect::<Vec<_>>(), [125, 31, 7, 1, 1, 1]);
        assert!(size.is_least());
    }
}
