//! The declaration of the keys of a table: each key stands once, with its type, default and kind. The
//! reader, the default, the description, the warnings of a reload and the tests of the documents come
//! from there.

/// A declared table.
pub(crate) trait Declared {
    /// The keys, and whether each is read at the start alone.
    #[cfg(test)]
    const KEYS: &'static [(&'static str, bool)];

    /// The keys that differ and are read at the start alone.
    fn differing_at_start(&self, now: &Self) -> Vec<&'static str>;
}

/// Declares a table whose keys are independent settings:
///
/// ```text
/// Table ["heading"] {
///     /// The meaning of the key.
///     key: type = default, kind(range), at start, row description;
/// }
/// ```
///
/// `at start` marks a key that is read at the start alone: a reload warns of a change. A key has a row
/// in the description, with its name and its value, unless `row` says otherwise. A kind may use the
/// keys before it. A default may use the environment, if its name follows the heading.
macro_rules! keys {
    (@environment) => { _ };
    (@environment $environment:ident) => { $environment };
    (@default $Table:ident [] $fields:tt) => {
        impl Default for $Table {
            fn default() -> Self {
                Self $fields
            }
        }

        #[cfg(feature = "config")]
        impl $Table {
            fn default_in(_: &Environment) -> Self {
                Self::default()
            }
        }
    };
    (@default $Table:ident [$environment:ident] $fields:tt) => {
        impl $Table {
            /// The default of a user with this environment.
            pub(super) fn default_in($environment: &Environment) -> Self {
                Self $fields
            }
        }
    };
    (@first [$first:expr $(, $rest:expr)?]) => { $first };
    (@at start) => { true };
    (
        $(#[$meta:meta])*
        $Table:ident [$heading:literal $(, $environment:ident)?] {
            $(
                $(#[$doc:meta])*
                $key:ident: $type:ty = $default:expr, $kind:expr
                $(, at $start:ident)? $(, row $row:expr)?;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $Table {
            $($(#[$doc])* pub $key: $type,)*
        }

        keys!(@default $Table [$($environment)?] { $($key: $default,)* });

        impl Declared for $Table {
            #[cfg(test)]
            const KEYS: &'static [(&'static str, bool)] = &[$((
                concat!($heading, ".", stringify!($key)),
                keys!(@first [$(keys!(@at $start),)? false]),
            ),)*];

            fn differing_at_start(&self, now: &Self) -> Vec<&'static str> {
                let keys = [$((
                    keys!(@first [$(keys!(@at $start),)? false]) && self.$key != now.$key,
                    concat!($heading, ".", stringify!($key)),
                ),)*];
                keys.into_iter().filter(|(differs, _)| *differs).map(|(_, key)| key).collect()
            }
        }

        #[cfg(feature = "config")]
        impl $Table {
            /// The heading of the table.
            pub(super) const HEADING: &str = concat!("[", $heading, "]");

            /// Takes all keys.
            pub(super) fn read(table: &mut Table<'_, '_>) -> Self {
                let default = Self::default_in(table.check.environment);
                $(let $key: $type = $kind.read(table, stringify!($key), default.$key);)*
                table.end();
                Self { $($key,)* }
            }

            /// The keys and their values for people.
            #[allow(unused_variables, reason = "a row of another form does not need the value")]
            pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
                let Self { $($key,)* } = self.clone();
                let rows = [$(keys!(@first [
                    $(row_of($row, self),)?
                    $kind.show(&$key).map(|value| (stringify!($key), value))
                ]),)*];
                rows.into_iter().flatten().collect()
            }
        }
    };
}

pub(super) use keys;
