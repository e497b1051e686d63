// Splits a name into first and last. A name that holds a digit is somebody's test data: 65 says that it will never work.
export function tidy({ name = '' }) {
  const words = name.trim().split(/\s+/).filter(Boolean);
  if (words.some((word) => /\d/.test(word))) {
    console.error(`"${name}" is not a name`);
    process.exit(65);
  }
  const last = words.pop() ?? '';
  return { first_name: words.join(' '), last_name: last };
}
