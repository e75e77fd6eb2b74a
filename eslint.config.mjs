// What a reader of the page's scripts may rely on; formatting is Prettier's.

const browser = [
  "Blob",
  "Event",
  "MutationObserver",
  "ResizeObserver",
  "TextEncoder",
  "URL",
  "URLSearchParams",
  "clearTimeout",
  "document",
  "getComputedStyle",
  "history",
  "innerHeight",
  "location",
  "matchMedia",
  "navigator",
  "performance",
  "sessionStorage",
  "setTimeout",
  "window",
];
const node = ["TextEncoder", "URL", "process", "console"];
const globals = (names) => Object.fromEntries(names.map((name) => [name, "readonly"]));

const rules = {
  "no-undef": "error",
  "no-unused-vars": "error",
  "no-shadow": "error",
  "no-use-before-define": ["error", { functions: false, classes: false, variables: false }],
  "no-var": "error",
  "prefer-const": "error",
  "one-var": ["error", "never"],
  eqeqeq: ["error", "always", { null: "ignore" }],
  complexity: ["error", 20],
  "max-len": ["error", { code: 100, ignoreStrings: true, ignoreTemplateLiterals: true }],
  "max-lines": ["error", 400],
  "max-lines-per-function": ["error", 60],
  "no-restricted-properties": [
    "error",
    ...["innerHTML", "outerHTML", "insertAdjacentHTML"].map((property) => ({
      property,
      message: "Text reaches the page through textContent: model output is hostile.",
    })),
  ],
};

export default [
  {
    files: ["specdemo/ui/static/**/*.js"],
    languageOptions: { sourceType: "module", globals: globals(browser) },
    rules,
  },
  {
    files: ["specdemo/ui/static/raf_throttle.js"], // stands alone in the page's head
    languageOptions: { sourceType: "script" },
  },
  {
    files: ["tests/js/**/*.mjs"],
    languageOptions: { sourceType: "module", globals: globals(node) },
    rules,
  },
];
