// A link to a kernel opens its text, and a cell that is cut off shows all of its words.
function open() {
  const found = document.getElementById(location.hash.slice(1));
  if (found && found.tagName === "DETAILS") found.open = true;
}
addEventListener("hashchange", open);
addEventListener("mouseover", (event) => {
  const cell = event.target.closest(".steps td");
  if (cell && !cell.title) cell.title = cell.textContent;
});
open();
