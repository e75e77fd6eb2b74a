// Stands in the page's head, before Gradio's own scripts take hold of requestAnimationFrame.
// While a race runs, others' animations get four frames a second: timers that Gradio hides ask for
// sixty, run or not, and each frame is drawn by the processor that may be computing the race. The
// view draws with specdemoFrame.
(() => {
  const request = window.requestAnimationFrame.bind(window);
  const cancel = window.cancelAnimationFrame.bind(window);
  window.specdemoFrame = request;
  window.requestAnimationFrame = (f) =>
    document.body.classList.contains("sd-racing") ? -setTimeout(() => request(f), 250) : request(f);
  window.cancelAnimationFrame = (id) => (id < 0 ? clearTimeout(-id) : cancel(id));
})();
