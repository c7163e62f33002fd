"use strict";

// The path of the program in the package of this machine, an optional dependency.
exports.program = () => {
  const name = `@ceased/${process.platform}-${process.arch}`;
  try {
    return require.resolve(`${name}/ceased`);
  } catch {
    console.error(
      `ceased: the package ${name} is not installed. ceased runs on Linux on x64 and arm64; there, install it again ` +
        "without --omit=optional or --no-optional.",
    );
    process.exit(1);
  }
};
