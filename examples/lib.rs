//! Nothing lives here: the programs are the examples of this package.
