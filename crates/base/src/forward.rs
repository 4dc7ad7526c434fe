/// Implements methods that call the method of another value with the same name and arguments.
///
/// ```
/// struct Label(String);
///
/// impl Label {
///     obento_base::forward! { self.0;
///         fn len(&self) -> usize;
///         fn starts_with(&self, first: char) -> bool;
///     }
/// }
///
/// let label = Label("data".to_owned());
/// assert!(label.len() == 4 && label.starts_with('d'));
/// ```
#[macro_export]
macro_rules! forward {
    ($to:expr; $(fn $name:ident(&$this:ident $(, $arg:ident: $type:ty)*) $(-> $result:ty)?;)+) => {$(
        fn $name(&$this $(, $arg: $type)*) $(-> $result)? {
            $to.$name($($arg),*)
        }
    )+};
}
